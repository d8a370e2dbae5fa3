"""`shortcuts`: count, test, train, judge."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

import numpy as np
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.base.options import documented, from_names, signature
from scansnap.base.progress import progress_bar
from scansnap.text.shortcuts.attention import (
    Course,
    Outcome,
    ReadWords,
    population_course,
    train_on,
)
from scansnap.text.shortcuts.counting import FOLDS, HELD_OUT, LabelCounts, count_rows
from scansnap.text.shortcuts.distinct import Distinctness, FloatArray, IntArray, distinctness, z_statistic
from scansnap.text.shortcuts.options import ShortcutOptions
from scansnap.text.shortcuts.result import Control, Curves, Finding, Reason, Shortcuts
from scansnap.text.shortcuts.row_files import open_rows
from scansnap.text.shortcuts.rows import RowReader
from scansnap.text.shortcuts.stability import STABLE, by_fold, is_gone, rows_to_tell, stability
from scansnap.theory.spurious import spurious_share

P = ParamSpec("P")

LOOKS = 2.0
"""The z, in the rows that are not held out, from which a word looks distinct."""

SIZES = (0.25, 1.0, 4.0, 16.0)
"""Numbers of rows, over those there are, for which `spurious_share` is computed."""

SHOWN_CURVES = 24


@dataclass(frozen=True, kw_only=True)
class ShortcutCall(ShortcutOptions):
    """A call of `shortcuts`, for its signature."""

    text: str
    label: str
    allow: Collection[str] = ()
    progress: bool | None = None


def _called_as(
    call: Callable[P, ShortcutCall],
) -> Callable[[Callable[..., Shortcuts]], Callable[Concatenate[object, P], Shortcuts]]:
    """A decorator that gives a function the options as typed keywords, and their documentation."""

    def decorate(function: Callable[..., Shortcuts]) -> Callable[Concatenate[object, P], Shortcuts]:
        own = inspect.signature(function)
        named = [parameter for parameter in own.parameters.values() if parameter.name != "words"]
        function.__signature__ = signature(own.replace(parameters=named), ShortcutOptions)  # type: ignore[attr-defined]
        function.__doc__ = documented(function.__doc__ or "", ShortcutOptions)
        return function

    return decorate


@_called_as(ShortcutCall)
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
    """Find words that tell the label of a text, say which of them attention picks and when, and which are spurious.

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
        Show progress bars; by default only on an interactive terminal.

    Returns
    -------
    Shortcuts
        With `findings`, `shortcuts`, `spurious`, `outcomes`, and `write_table`.
    """
    options = from_names(ShortcutOptions, words)
    for name, column in (("text", text), ("label", label)):
        if not isinstance(column, str) or not column:
            raise InputError(f"{name} is {column!r}: give the name of a column.")
    if isinstance(allow, str) or not all(isinstance(word, str) for word in allow):
        raise InputError(f"allow is {allow!r:.60}: give a list of words.")
    rows = open_rows(source, (text, label), split=options.split, encoding=options.encoding)
    counts = count_rows(rows, RowReader(text, label), options, progress)
    judged = _judge(counts, options)
    attention = _attend(counts, judged, options, progress) if options.attention else None
    allowed = {word.lower() for word in allow}
    return Shortcuts(
        source=rows.name, text=text, label=label,
        labels=dict(zip(counts.labels, counts.rows.sum(axis=0).tolist(), strict=True)),
        num_words=counts.num_words, num_tested=len(counts.words), num_tests=judged.evidence.num_tests,
        control=_control(counts, judged, options),
        findings=tuple(_findings(counts, judged, attention, allowed)),
        remarks=counts.remarks,
        read_share=None if attention is None else attention.read_share,
        curves=None if attention is None else attention.curves,
        outcomes=() if attention is None else attention.outcomes,
        spurious_share=_spurious_shares(counts),
        options=options,
    )  # fmt: skip


# --- evidence ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judged:
    """Words that look distinct, shortcuts first, then by z."""

    evidence: Distinctness  # of all words
    needed_p: float
    word: IntArray  # (n,)
    label: IntArray  # (n,) the label that each is most distinct for
    reasons: list[tuple[Reason, ...]]
    stability: FloatArray
    with_label: IntArray  # (n, F)
    with_word: IntArray  # (n, F)

    @property
    def is_shortcut(self) -> NDArray[np.bool_]:
        """(n,) which are shortcuts."""
        return np.array([not reasons for reasons in self.reasons], bool)


def _judge(counts: LabelCounts, options: ShortcutOptions) -> _Judged:
    rows = counts.rows
    evidence = distinctness(counts.by_label, rows.sum(axis=0), options.level)
    needed_p = options.level / evidence.num_tests
    kept_z = z_statistic(counts.in_folds(range(HELD_OUT, FOLDS)), rows[HELD_OUT:].sum(axis=0))
    best = np.where(evidence.p <= needed_p, np.maximum(evidence.z, LOOKS), kept_z)  # what is beyond chance looks so too
    label = best.argmax(axis=1) if len(best) else np.empty(0, np.int64)
    every = np.arange(len(label))
    word = np.flatnonzero(best[every, label] >= LOOKS)
    label = label[word]
    with_label, with_word = by_fold(counts, word, label)
    stable = stability(with_label, with_word, rows, label, options.seed)
    gone = is_gone(with_label, with_word, rows, label)
    rare = ~evidence.is_testable(options.level)[word, label]
    chance = evidence.p[word, label] > needed_p
    reasons: list[tuple[Reason, ...]] = []
    for i in range(len(word)):
        marks: dict[Reason, bool] = {
            "rare": bool(rare[i]), "chance": bool(chance[i] and not rare[i]), "unstable": bool(stable[i] < STABLE),
            "gone": bool(gone[i]),
        }  # fmt: skip
        reasons.append(tuple(reason for reason, holds in marks.items() if holds))
    order = sorted(range(len(word)), key=lambda i: (bool(reasons[i]), -evidence.z[word[i], label[i]]))
    return _Judged(
        evidence, needed_p, word[order], label[order], [reasons[i] for i in order], stable[order],
        with_label[order], with_word[order],
    )  # fmt: skip


def _control(counts: LabelCounts, judged: _Judged, options: ShortcutOptions) -> Control:
    """Words with z of at least 2 for some label, and those beyond chance, before and after the shuffle."""
    rows = counts.rows.sum(axis=0)
    shuffled = distinctness(np.asarray(counts.shuffled.todense()), rows, options.level)

    def beyond(evidence: Distinctness) -> int:
        return int((evidence.p <= options.level / evidence.num_tests).any(axis=1).sum())

    def looking(evidence: Distinctness) -> int:
        return int((evidence.z >= LOOKS).any(axis=1).sum())

    return Control(looking(judged.evidence), looking(shuffled), beyond(judged.evidence), beyond(shuffled))


def _spurious_shares(counts: LabelCounts) -> dict[int, float]:
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


# --- attention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Attention:
    """What training says of the words that the model reads."""

    place: dict[int, int]  # from a word's number to its place in the model
    population: Course
    trained: Course
    read_share: float
    curves: Curves
    outcomes: tuple[Outcome, ...]

    def by_word(self) -> dict[int, tuple[float | None, ...]]:
        """The largest gain of each word and when it is picked, in the texts and in the population."""
        columns = [
            values.tolist()
            for course in (self.trained, self.population)
            for values in (course.largest(), course.picked_at())
        ]
        return {word: tuple(_number(column[at]) for column in columns) for word, at in self.place.items()}


def _attend(counts: LabelCounts, judged: _Judged, options: ShortcutOptions, progress: bool | None) -> _Attention | None:
    """Train on the words that look distinct and on frequent ones."""
    by_label = counts.by_label
    frequent = np.argsort(-by_label.sum(axis=1), kind="stable")
    distinct = judged.word[: options.vocabulary // 2]
    chosen = np.array(list(dict.fromkeys([*distinct.tolist(), *frequent.tolist()]))[: options.vocabulary], np.int64)
    labels = np.flatnonzero(by_label[chosen].sum(axis=0) > 0) if len(chosen) else np.empty(0, np.int64)
    if len(labels) < 2:
        return None
    own_labels = dict(zip(judged.word.tolist(), judged.label.tolist(), strict=True))
    usual = judged.evidence.z[:, labels].argmax(axis=1)
    position = {int(k): i for i, k in enumerate(labels)}
    words = ReadWords(
        words=tuple(counts.words[i] for i in chosen),
        labels=tuple(counts.labels[k] for k in labels),
        counts=by_label[np.ix_(chosen, labels)],
        rows=counts.rows.sum(axis=0)[labels],
        speaks_for=np.array([position.get(own_labels.get(i, -1), int(usual[i])) for i in chosen.tolist()]),
    )
    texts, held_out = words.read(counts.sample, counts.labels), words.read(counts.held_out_sample, counts.labels)
    if not len(texts) or not len(held_out):
        return None
    place = {int(word): i for i, word in enumerate(chosen)}
    is_shortcut = dict(zip(judged.word.tolist(), judged.is_shortcut.tolist(), strict=True))
    kinds = {
        kind: np.array([is_shortcut.get(int(i)) is wanted for i in chosen])
        for kind, wanted in (("shortcut", True), ("spurious", False))
    }
    settings: list[tuple[str, int, str | None]] = [("as it is", len(texts), None)]
    settings += [
        (f"a prior of {options.prior:g} on {kind} words", len(texts), kind) for kind in kinds if kinds[kind].any()
    ]
    settings += [
        (f"{name} of the texts", max(1, len(texts) // part), None) for name, part in (("half", 2), ("a quarter", 4))
    ]
    with progress_bar("training attention", len(settings) + 1, progress) as show:
        population = population_course(words, options)
        runs = []
        for i, (name, size, kind) in enumerate(settings):
            show(i + 1, f"({name})")
            prior = None if kind is None else options.prior * kinds[kind]
            trained = train_on(words, texts[slice(size)], options, options.seed, prior)
            runs.append((trained, trained.outcome(name, size, held_out, kinds)))
    trained = runs[0][0]
    return _Attention(
        place=place,
        population=population,
        trained=trained.course,
        read_share=float(by_label[chosen].sum() / counts.occurrences.sum()),
        curves=_curves(words, judged, place, population, trained.course),
        outcomes=tuple(outcome for _, outcome in runs),
    )


def _curves(words: ReadWords, judged: _Judged, place: dict[int, int], population: Course, trained: Course) -> Curves:
    shown = [place[word] for word in judged.word.tolist() if word in place][:SHOWN_CURVES]
    return Curves(
        words=tuple(words.words[i] for i in shown),
        updates=tuple(trained.times.tolist()),
        gains=tuple(tuple(_number(gain) for gain in trained.gains[:, i]) for i in shown),
        times=tuple(population.times.tolist()),
        population_gains=tuple(tuple(population.gains[:, i].tolist()) for i in shown),
    )


# --- findings ---------------------------------------------------------------------------------------------------------


def _findings(
    counts: LabelCounts, judged: _Judged, attention: _Attention | None, allowed: Collection[str]
) -> Iterable[Finding]:
    num_rows = int(counts.rows.sum())
    texts, with_label = judged.with_word.sum(axis=1), judged.with_label.sum(axis=1)
    share, usual = with_label / texts, counts.rows.sum(axis=0)[judged.label] / num_rows
    z, p = (values[judged.word, judged.label] for values in (judged.evidence.z, judged.evidence.p))
    to_tell = rows_to_tell(share, usual, texts, num_rows, judged.needed_p)
    held_texts = judged.with_word[:, :HELD_OUT].sum(axis=1)
    held_with_label = judged.with_label[:, :HELD_OUT].sum(axis=1)
    training = {} if attention is None else attention.by_word()
    for i, word in enumerate(judged.word.tolist()):
        name = counts.words[word]
        gain, picked_at, population_gain, population_picked_at = training.get(word, (None,) * 4)
        yield Finding(
            word=name, label=counts.labels[judged.label[i]],
            verdict="spurious" if judged.reasons[i] else "shortcut", reasons=judged.reasons[i],
            allowed=name in allowed, texts=int(texts[i]), texts_with_label=int(with_label[i]),
            share=float(share[i]), usual_share=float(usual[i]), z=float(z[i]), p=float(p[i]),
            corrected_p=float(min(1.0, p[i] * judged.evidence.num_tests)), stability=float(judged.stability[i]),
            held_out_texts=int(held_texts[i]),
            held_out_share=None if held_texts[i] == 0 else float(held_with_label[i] / held_texts[i]),
            rows_to_tell=float(to_tell[i]) if p[i] > judged.needed_p and share[i] > usual[i] else None,
            gain=gain, picked_at=picked_at, population_gain=population_gain, population_picked_at=population_picked_at,
        )  # fmt: skip


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
