"""`shortcuts`: count, test, train, judge."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from scansnap.runtime.errors import InputError
from scansnap.shortcuts.attention import Attention, attend
from scansnap.shortcuts.counting import HELD_OUT, LabelCounts, count_rows
from scansnap.shortcuts.judging import Judged, control, judge, rows_to_tell
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.result import Finding, Shortcuts
from scansnap.shortcuts.rows import RowReader, open_rows
from scansnap.theory.tokens import spurious_share
from scansnap.validation.calls import options_as_kwargs
from scansnap.validation.options import from_names
from scansnap.validation.validate import validated

SIZES = (0.25, 1.0, 4.0, 16.0)
"""Numbers of rows, over those there are, for which `spurious_share` is computed."""


@dataclass(frozen=True, kw_only=True)
class ShortcutCall(ShortcutOptions):
    """A call of `shortcuts`, for its signature."""

    text: str
    label: str
    allow: Collection[str] = ()
    progress: bool | None = None


@options_as_kwargs(ShortcutCall, ShortcutOptions)
@validated
def shortcuts(
    source: object,
    /,
    *,
    text: str,
    label: str,
    allow: Collection[str] = (),
    progress: bool | None = None,
    **words: Any,
) -> Shortcuts:
    """Find words that tell the label of a text, say which of them attention picks and when, and which may be by chance.

    Parameters
    ----------
    source : path, or table, or list of mappings
        A CSV, JSON lines or Parquet file, a folder that Hugging Face `datasets` saved, or rows in memory: a data set of
        `datasets`, a table of pandas, Polars or Arrow, a list of mappings.
    {options}
    text, label : str
        The columns of text and label; a path such as "review.body" leads into nested objects.
    allow : collection of str
        Words that may tell the label.
    progress : bool, optional
        Show progress bars, or nothing if false; by default bars on a terminal, and elsewhere a line now and then.

    Returns
    -------
    Shortcuts
        With `findings`, `shortcuts`, `unproven`, `outcomes`, and `write_table`.

    Examples
    --------
    >>> found = ss.shortcuts("example", text="review", label="sentiment", attention=False)
    >>> found.findings[0].word, found.findings[0].verdict
    ('imported', 'shortcut')
    """
    options = from_names(ShortcutOptions, words)
    for name, column in (("text", text), ("label", label)):
        if not isinstance(column, str) or not column:
            raise InputError(f"{name} is {column!r}: give the name of a column.")
    rows = open_rows(source, (text, label), split=options.split, encoding=options.encoding)
    counts = count_rows(rows, RowReader(text, label), options, progress)
    judged = judge(counts, options)
    attention = attend(counts, judged, options, progress) if options.attention else None
    allowed = {word.lower() for word in allow}
    return Shortcuts(
        source=rows.name,
        text=text,
        label=label,
        labels=dict(zip(counts.labels, counts.rows.sum(axis=0).tolist(), strict=True)),
        num_texts=counts.num_texts,
        num_ambiguous=counts.num_ambiguous,
        num_words=counts.num_words,
        num_tested=len(counts.words),
        num_tests=judged.evidence.num_tests,
        control=control(counts, judged, options),
        findings=tuple(_findings(counts, judged, attention, allowed)),
        remarks=counts.remarks,
        read_share=None if attention is None else attention.read_share,
        curves=None if attention is None else attention.curves,
        outcomes=() if attention is None else attention.outcomes,
        chance_share=_chance_shares(counts),
        options=options,
    )


def _findings(
    counts: LabelCounts, judged: Judged, attention: Attention | None, allowed: Collection[str]
) -> Iterable[Finding]:
    num_rows = int(counts.rows.sum())
    texts, with_label = judged.with_word.sum(axis=1), judged.with_label.sum(axis=1)
    share, usual = with_label / texts, counts.rows.sum(axis=0)[judged.label] / num_rows
    z, p = (values[judged.word, judged.label] for values in (judged.evidence.z, judged.evidence.p))
    to_tell = rows_to_tell(share, usual, texts, num_rows, judged.evidence.needed_p)
    held_texts = judged.with_word[:, :HELD_OUT].sum(axis=1)
    held_with_label = judged.with_label[:, :HELD_OUT].sum(axis=1)
    training = {} if attention is None else attention.by_word()
    for i, word in enumerate(judged.word.tolist()):
        name = counts.words[word]
        gain, picked_at, population_gain, population_picked_at = training.get(word, (None,) * 4)
        yield Finding(
            word=name,
            label=counts.labels[judged.label[i]],
            verdict="unproven" if judged.reasons[i] else "shortcut",
            reasons=judged.reasons[i],
            allowed=name in allowed,
            texts=int(texts[i]),
            different_texts=int(judged.different_texts[i]),
            texts_with_label=int(with_label[i]),
            share=float(share[i]),
            usual_share=float(usual[i]),
            z=float(z[i]),
            p=float(p[i]),
            corrected_p=float(min(1.0, p[i] * judged.evidence.num_tests)),
            stability=float(judged.stability[i]),
            held_out_texts=int(held_texts[i]),
            held_out_share=None if held_texts[i] == 0 else float(held_with_label[i] / held_texts[i]),
            rows_to_tell=float(to_tell[i]) if p[i] > judged.evidence.needed_p and share[i] > usual[i] else None,
            gain=gain,
            picked_at=picked_at,
            population_gain=population_gain,
            population_picked_at=population_picked_at,
        )


def _chance_shares(counts: LabelCounts) -> dict[int, float]:
    """The expected share of a text's words that are in texts of one label only though other labels have them."""
    by_label, rows = counts.by_label, counts.rows.sum(axis=0)
    used = by_label.sum(axis=0) > 0
    if used.sum() < 2:
        return {}
    probs = (by_label[:, used] / counts.occurrences[used]).T
    weights = rows[used] / rows[used].sum()
    length = 1 + max(1, round(float(counts.occurrences.sum() / rows.sum())))
    sizes = [max(1, round(size * int(rows.sum()))) for size in SIZES]
    return {
        size: float(weights @ spurious_share(probs, weights=weights, seq_len=length, num_sequences=size))
        for size in dict.fromkeys(sizes)
    }
