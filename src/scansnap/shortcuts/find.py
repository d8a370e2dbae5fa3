"""`shortcuts`: read, test, judge, and train if asked to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import regex
from scipy import stats

from scansnap.corpus.sources import Table, open_table
from scansnap.corpus.tokenizers import UNSPACED
from scansnap.shortcuts.attention import attend
from scansnap.shortcuts.example import example_rows
from scansnap.shortcuts.features import SHAPES, Feature
from scansnap.shortcuts.judging import Judged, control, judge
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.result import Finding, SecondSource, Shortcuts, Test
from scansnap.shortcuts.texts import Collected, LabeledTexts, label_texts
from scansnap.validation import checks
from scansnap.validation.options import from_names, options_as_kwargs
from scansnap.validation.validate import validated

EXAMPLE = "example"
"""The name of the data set that the package makes up."""

EXAMPLES = 3
"""Example rows of a finding."""

EXCERPT, BEFORE = 200, 30
"""Characters of an example, and of those before its feature."""

HOLDS_P = 0.05
"""A shortcut holds in the second source if its share there is at most this probable without it."""


@dataclass(frozen=True, kw_only=True)
class ShortcutCall(ShortcutOptions):
    """A call of `shortcuts`, for its signature."""

    text: str
    label: str
    test: object = None
    accept: Collection[tuple[str, str, str]] = ()
    progress: bool | None = None


@options_as_kwargs(ShortcutCall, ShortcutOptions)
@validated
def shortcuts(
    source: object,
    /,
    *,
    text: str,
    label: str,
    test: object = None,
    accept: Collection[tuple[str, str, str]] = (),
    progress: bool | None = None,
    **words: Any,
) -> Shortcuts:
    """Find what gives away the label of a text: words, pairs, positions, length, casing, white space, patterns.

    Parameters
    ----------
    source : path, or table, or list of dicts
        A CSV, JSON lines or Parquet file, a folder of them, or rows in memory: a table of pandas, Polars or Arrow, a
        data set of `datasets`, a dict of lists, a list of dicts.
    {options}
    text, label : str
        The columns of text and label; a path such as "review.body" leads into nested objects.
    test : path, or table, or list of dicts, optional
        A second source, such as a test set: which of its texts are copies, and which shortcuts hold there too.
    accept : collection of tuples
        Findings that are accepted, each as its kind, feature and label: what `read_baseline` returns.
    progress : bool, optional
        Show progress bars, or nothing if false; by default bars on a terminal, and elsewhere an occasional line.

    Returns
    -------
    Shortcuts
        With `findings`, `shortcuts`, `unproven`, `to_pandas` and `write_table`.

    Examples
    --------
    >>> found = ss.shortcuts("example", text="review", label="sentiment")
    >>> [finding.feature for finding in found.shortcuts][:2]
    ['imported', 'stars']
    """
    options = from_names(ShortcutOptions, words)
    collected = Collected()
    tables = [_open(source, text, label, options)]
    tables += [] if test is None else [_open(test, text, label, options, with_split=False)]
    for table in tables:
        collected.read(table, options, progress)
    texts = label_texts(collected, options)
    judged = judge(texts, options)
    attention = attend(texts, judged, options, progress) if options.attention else {}
    features = texts.table.features
    is_unspaced = [UNSPACED.search(feature.name) is not None for feature in features if feature.kind == "word"]
    return Shortcuts(
        source=tables[0].name,
        text=text,
        label=label,
        labels=dict(sorted(collected.rows[0].items())),
        num_texts=texts.num_texts,
        num_tested_texts=int((~texts.is_test).sum()),
        num_ambiguous=texts.num_ambiguous,
        drawn_share=int(texts.copies[~texts.is_test].sum()) / collected.reports[0].used,
        num_words=len(collected.vocabulary),
        unspaced_share=float(np.mean(is_unspaced or [False])),
        num_features=dict(Counter(feature.kind for feature in features)),
        num_pairs=texts.table.num_pairs,
        num_tests=judged.evidence.num_tests,
        control=control(texts, judged, options),
        findings=tuple(_findings(texts, judged, attention, accept, test is not None)),
        report=collected.reports[0],
        files=None if tables[0].found is None else tables[0].found.sentence(),
        second=None if test is None else _second_source(tables[1], collected, texts),
        options=options,
    )


def _open(source: object, text: str, label: str, options: ShortcutOptions, *, with_split: bool = True) -> Table:
    columns = (text, label)
    if isinstance(source, str | Path):
        path = checks.expand_user("source", checks.path("source", source))
        if source == EXAMPLE and not path.exists():
            return replace(open_table(example_rows(), columns), name=EXAMPLE)
        source = path
    return open_table(source, columns, split=options.split if with_split else None, encoding=options.encoding)


def _second_source(table: Table, collected: Collected, texts: LabeledTexts) -> SecondSource:
    copied = np.flatnonzero(texts.is_test & texts.is_shared)
    return SecondSource(
        table.name,
        rows=sum(collected.rows[1].values()),
        copied_texts=len(copied),
        texts=int(texts.is_test.sum()),
        examples=tuple(_excerpt(*texts.beginnings[i]) for i in copied[:EXAMPLES]),
        report=collected.reports[1],
    )


def _findings(
    texts: LabeledTexts,
    judged: Judged,
    attention: dict[int, tuple[float | None, int | None]],
    accept: Collection[tuple[str, str, str]],
    has_test: bool,
) -> Iterable[Finding]:
    features, has, accepted = texts.table.features, texts.table.has, {tuple(entry) for entry in accept}
    usual_shares = judged.rows / judged.rows.sum()
    test_counts, test_rows = texts.counts(texts.is_test & ~texts.is_shared)
    for i, (feature, k) in enumerate(zip(judged.feature.tolist(), judged.label.tolist(), strict=True)):
        kind, name = features[feature]
        label = texts.labels[k]
        count, with_label = int(judged.with_feature[feature].sum()), int(judged.with_feature[feature, k])
        test_count, test_with_label = int(test_counts[feature].sum()), int(test_counts[feature, k])
        p = float(judged.evidence.p[feature, k])
        explained_by = judged.explained_by[i]
        other = None if explained_by is None else features[explained_by]
        is_shortcut, is_copied = not judged.reasons[i], "copies" in judged.reasons[i]
        own = has.indices[has.indptr[feature] : has.indptr[feature + 1]]
        own = own[(texts.label[own] == k) & ~texts.is_test[own]]  # texts of the first source
        own = own[np.argsort(-texts.copies[own], kind="stable")] if is_copied else own
        shown = own[:EXAMPLES] if is_shortcut or is_copied else ()
        gain, picked_at = attention.get(feature, (None, None))
        yield Finding(
            kind=kind,
            feature=name,
            label=label,
            verdict="shortcut" if is_shortcut else "unproven",
            reasons=judged.reasons[i],
            explained_by=other and (other.name if other.kind == "word" else f"{other.kind}: {other.name}"),
            accepted=(kind, name, label) in accepted,
            texts=count,
            texts_with_label=with_label,
            share=with_label / count,
            usual_share=float(usual_shares[k]),
            z=float(judged.evidence.z[feature, k]),
            p=p,
            corrected_p=min(1.0, p * judged.evidence.num_tests),
            test=_holds(test_count, test_with_label, k, test_rows) if has_test else None,
            test_texts=test_count,
            test_share=test_with_label / test_count if test_count else None,
            copies=int(texts.copies[own].max(initial=0)),
            examples=tuple(_excerpt(*texts.beginnings[int(i)], features[feature]) for i in shown),
            gain=gain,
            picked_at=picked_at,
        )


def _holds(count: int, with_label: int, label: int, rows: Any) -> Test:
    """Whether a feature is more frequent with its label than usual in the second source."""
    if not count:
        return "not seen"
    p = stats.hypergeom.sf(with_label - 1, int(rows.sum()), int(rows[label]), count)
    return "holds" if p <= HOLDS_P else "not confirmed"


def _excerpt(place: str, text: str, feature: Feature | None = None) -> str:
    """Where a row is, and its text around a feature, or its beginning."""
    at = 0
    if feature is not None:
        words = r"\s*".join(map(regex.escape, feature.name.split()))
        shapes = [pattern for kind, name, pattern in SHAPES if (kind, name) == feature]
        for pattern in shapes or [rf"\b{words}\b", words]:
            if found := list(regex.finditer(pattern, text, 0 if shapes else regex.IGNORECASE)):
                at = found[-1 if feature.kind in ("last", "late") else 0].start()
                break
    first = 0 if at <= BEFORE else text.find(" ", at - BEFORE, at) + 1 or at
    return f"{place}: {'…' * (first > 0)}{text[first : first + EXCERPT]}{'…' * (first + EXCERPT < len(text))}"
