"""Training attention on the words that look distinct and on frequent ones: as it is, with a prior, with fewer texts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scansnap.runtime.progress import progress_bar
from scansnap.shortcuts.attention import Course, Outcome, ReadWords, population_course, train_on
from scansnap.shortcuts.counting import LabelCounts
from scansnap.shortcuts.judge import Judged
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.result import Curves

SHOWN_CURVES = 12
"""Words of each verdict whose course is kept: the most distinct shortcuts, the most attended unproven words."""


@dataclass(frozen=True)
class Attention:
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
        return {word: tuple(number(column[at]) for column in columns) for word, at in self.place.items()}


def attend(counts: LabelCounts, judged: Judged, options: ShortcutOptions, progress: bool | None) -> Attention | None:
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
        for kind, wanted in (("shortcut", True), ("unproven", False))
    }
    settings: list[tuple[str, int, str | None]] = [("as it is", len(texts), None)]
    settings += [
        (f"a prior of {options.prior:g} on {kind} words", len(texts), kind) for kind in kinds if kinds[kind].any()
    ]
    settings += [
        (f"{name} of the texts", max(1, len(texts) // part), None) for name, part in (("half", 2), ("a quarter", 4))
    ]
    with progress_bar("training attention", len(settings) + 1, progress) as show:
        show(0, "(endless texts)")
        population = population_course(words, options)
        runs = []
        for i, (name, size, kind) in enumerate(settings):
            show(i + 1, f"({name})")
            prior = None if kind is None else options.prior * kinds[kind]
            trained = train_on(words, texts[slice(size)], options, options.seed, prior)
            runs.append((trained, trained.outcome(name, size, held_out, kinds)))
    trained = runs[0][0]
    return Attention(
        place=place,
        population=population,
        trained=trained.course,
        read_share=float(by_label[chosen].sum() / counts.occurrences.sum()),
        curves=_curves(words, judged, place, population, trained.course),
        outcomes=tuple(outcome for _, outcome in runs),
    )


def _curves(words: ReadWords, judged: Judged, place: dict[int, int], population: Course, trained: Course) -> Curves:
    is_shortcut = judged.is_shortcut
    shown = [place[word] for word in judged.word[is_shortcut].tolist() if word in place][:SHOWN_CURVES]
    largest = np.nan_to_num(trained.largest())
    others = [place[word] for word in judged.word[~is_shortcut].tolist() if word in place]
    shown += sorted(others, key=lambda at: -largest[at])[:SHOWN_CURVES]
    return Curves(
        words=tuple(words.words[i] for i in shown),
        updates=tuple(trained.times.tolist()),
        gains=tuple(tuple(number(gain) for gain in trained.gains[:, i]) for i in shown),
        times=tuple(population.times.tolist()),
        population_gains=tuple(tuple(population.gains[:, i].tolist()) for i in shown),
    )


def number(value: float) -> float | None:
    """The value, or None for one that is not there."""
    return None if math.isnan(value) else float(value)
