"""Which words attention picks, and when: the exact (Y, Z) dynamics with the label as the next token.

A labeled text is a sequence of the paper's: its words are the contextual tokens, one query token asks for the label,
and the label is the next token.  A class is a label, P(l|k) the share of word l among the words of texts with label k.
The model reads S of the words; the others are left out of the texts.

- *Estimated classes*: the population dynamics (`flow`) of P(l|k) = d(l, k)/Σ_l' d(l', k), d being the texts with word
  and label.  This is training on endless long texts that have these shares.
- *The data themselves*: `train` on a fixed set of the real texts, in batches, by true SGD.

**Gain.**  In a text of |x| words, even attention gives each word 1/|x|.  The gain of a word is how much more it gets,

    |x| e^{z_l} / Σ_{l' in x} e^{z_l'},

on average over the texts of its label that have it; in the population e^{z_l}/Σ_l' P(l'|k) e^{z_l'}.  Attention
*picks* a word at the first record at which its gain is at least `PICKED`.  It may let go of it later, when the word's
texts are learned and the residual of others drives attention on.

Word columns of Y are never the next token and start equal, so they stay equal: loss and accuracy need the K columns of
the labels and one more, S + 1 times (the words and the query).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource, Draw
from scansnap.dynamics.flow import flow
from scansnap.dynamics.train import train
from scansnap.results.snapshot import Snapshot
from scansnap.runtime.progress import progress_bar
from scansnap.shortcuts.counting import FloatArray, IntArray, LabelCounts, SampledText
from scansnap.shortcuts.judging import Judged
from scansnap.shortcuts.options import AttentionOptions, ShortcutOptions
from scansnap.shortcuts.result import Curves, Outcome
from scansnap.systems.quantity import Quantity

PICKED = 2.0
QUERY = "label?"
RECORDS = 40
LAST_TIME = 1e6
"""The end of the population dynamics, in updates."""

SHOWN_CURVES = 12
"""Words of each verdict whose course is kept: the most distinct shortcuts, the most attended unproven words."""


@dataclass(frozen=True)
class ReadWords:
    """The words that the model reads: S words, K labels."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    counts: IntArray  # (S, K) texts with each word
    rows: IntArray  # (K,) texts
    speaks_for: IntArray  # (S,) the label that each word is most distinct for

    def classes(self, *, everywhere: bool = False) -> SequenceClasses:
        """The estimated classes; with `everywhere` each word is also in classes that never had it, half a time."""
        counts = self.counts.T + (0.5 if everywhere else 0.0)
        size = len(self.words)
        probs = np.zeros((len(self.labels), size + 1 + len(self.labels)))
        probs[:, :size] = counts / counts.sum(axis=1, keepdims=True)
        return SequenceClasses(
            probs=probs,
            query=np.full(len(self.labels), size),
            next_token=size + 1 + np.arange(len(self.labels)),
            vocab_size=probs.shape[1],
            weights=self.rows / self.rows.sum(),
            token_names=(*self.words, QUERY, *self.labels),
        )

    def read(self, texts: list[SampledText], labels: tuple[str, ...]) -> Texts:
        """Sampled texts as far as the model reads them; `labels` are those that the texts number."""
        place = {word: i for i, word in enumerate(self.words)}
        index = {label: k for k, label in enumerate(self.labels)}
        has_word = np.zeros((len(texts), len(self.words)), np.int32)
        label_of = np.array([index.get(labels[text.label], -1) for text in texts], np.int64)
        for i, text in enumerate(texts):
            has_word[i, [place[word] for word in text.words if word in place]] = 1
        usable = (label_of >= 0) & has_word.any(axis=1)
        return Texts(has_word[usable], label_of[usable])


@dataclass(frozen=True)
class Texts:
    """Texts that the model reads; each has some of its words."""

    has_word: NDArray[np.int32]  # (N, S)
    label: IntArray  # (N,)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, part: slice) -> Texts:
        return Texts(self.has_word[part], self.label[part])

    @cached_property
    def _occurrences(self) -> tuple[IntArray, IntArray, IntArray]:
        """The text and the word of every occurrence of a word, text by text, and the first one of each text."""
        text, word = np.nonzero(self.has_word)
        return text, word, np.flatnonzero(np.diff(text, prepend=-1))

    def _weights(self, logits: FloatArray) -> FloatArray:
        """The attention on every occurrence, from logits z (S,).

        Exponents are relative to the largest of the text's own: a prior may put words so far above those of another
        text that relative to it all of these would be 0.
        """
        text, word, first = self._occurrences
        exponents = logits[word]
        powers = np.exp(exponents - np.maximum.reduceat(exponents, first)[text])
        return powers / np.add.reduceat(powers, first)[text]

    def attention(self, logits: FloatArray) -> FloatArray:
        """(N, S) the attention of each text, from logits z (S,)."""
        text, word, _ = self._occurrences
        attention = np.zeros(self.has_word.shape)
        attention[text, word] = self._weights(logits)
        return attention

    def gains(self, logits: FloatArray, speaks_for: IntArray) -> FloatArray:
        """(n, S) how much more than even attention each word gets in texts of its label, from n records of z (n, S).

        NaN for a word that none of these texts has.
        """
        text, word, _ = self._occurrences
        is_own = self.label[text] == speaks_for[word]
        length, own_word = np.bincount(text)[text[is_own]], word[is_own]
        size = logits.shape[1]
        sums = [np.bincount(own_word, length * self._weights(record)[is_own], size) for record in logits]
        with np.errstate(invalid="ignore"):  # 0/0
            return np.array(sums) / np.bincount(own_word, minlength=size)

    def measure(self, logits: FloatArray, columns: FloatArray, num_words: int) -> tuple[float, float]:
        """Loss and accuracy, from z (S,) and Y's columns of the labels and of any word (S, K + 1)."""
        attention = self.attention(logits)
        read = attention / np.linalg.norm(attention, axis=1, keepdims=True) @ columns
        labels, word = read[:, :-1], read[:, -1:]
        exponents = np.concatenate([labels, word + math.log(num_words + 1)], axis=1)
        top = exponents.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(exponents - top).sum(axis=1)) + top[:, 0]
        loss = log_sum - labels[np.arange(len(self)), self.label]
        return float(loss.mean()), float((labels.argmax(axis=1) == self.label).mean())


class LabeledTexts(DataSource):
    """A fixed set of real texts for `train`."""

    def __init__(self, classes: SequenceClasses, texts: Texts) -> None:
        self._classes, self._texts = classes, texts

    @property
    def classes(self) -> SequenceClasses:
        """Classes that all have all words, so that any text can be one of any class; their P(l|k) are not read."""
        return self._classes

    def draw(self, *, seeds: NDArray[np.uint64], step: int, num_sequences: int | None, length: int) -> Draw:
        """The texts, the same for every seed."""
        runs = len(seeds)
        return Draw(np.tile(self._texts.label, (runs, 1)), np.tile(self._texts.has_word, (runs, 1, 1)))


@dataclass(frozen=True)
class Course:
    """Gains of words in the course of training."""

    times: FloatArray  # (n,) updates
    gains: FloatArray  # (n, S)

    def largest(self) -> FloatArray:
        """(S,) the largest gain of each word; NaN for words that no text has."""
        return self.gains.max(axis=0)

    def picked_at(self) -> FloatArray:
        """(S,) the first record at which the gain is at least `PICKED`; NaN for words that are not picked."""
        is_picked = self.gains >= PICKED
        return np.where(is_picked.any(axis=0), self.times[is_picked.argmax(axis=0)], np.nan)


def population_course(words: ReadWords, options: AttentionOptions) -> Course:
    """The population dynamics of the estimated classes."""
    times = np.geomspace(1.0, LAST_TIME, RECORDS)
    result = flow(
        words.classes(),
        lr_y=options.lr_y,
        lr_z=options.lr_z,
        times=times,
        record="attention_logits",
        rtol=1e-6,
        atol=1e-8,
        progress=False,
    )
    logits = result["attention_logits"].values.reshape(len(times), -1).astype(np.float64)
    probs = (words.counts / words.counts.sum(axis=0)).T  # (K, S)
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return Course(times, exponents / (exponents @ probs.T)[:, words.speaks_for])


@dataclass(frozen=True)
class Trained:
    """A training on texts."""

    course: Course
    logits: FloatArray  # (S,) z in the end, with the prior
    columns: FloatArray  # (S, K + 1) Y's columns of the labels and of a word

    def outcome(self, name: str, num_texts: int, held_out: Texts, groups: dict[str, NDArray[np.bool_]]) -> Outcome:
        """What it does on held-out texts."""
        loss, accuracy = held_out.measure(self.logits, self.columns, len(self.logits))
        attention = held_out.attention(self.logits).mean(axis=0)
        on = {group: float(attention[chosen].sum()) for group, chosen in groups.items()}
        error = math.sqrt(accuracy * (1 - accuracy) / len(held_out))
        return Outcome(name, num_texts, loss, accuracy, error, on["shortcut"], on["unproven"])


def train_on(words: ReadWords, texts: Texts, options: AttentionOptions, seed: int, prior: FloatArray | None) -> Trained:
    """Train on texts by SGD, from zero; `prior` (S,) is added to the attention logits."""
    size = len(words.words)
    added = np.zeros(size) if prior is None else prior
    result = train(
        LabeledTexts(words.classes(everywhere=True), texts),
        lr_y=options.lr_y,
        lr_z=options.lr_z,
        steps=options.updates,
        batch_size=min(options.batch_size, len(texts)),
        num_sequences=len(texts),
        seq_len=1 + max(1, int(texts.has_word.sum(axis=1).max())),
        seeds=seed,
        attention_prior=np.append(added, np.zeros(1 + len(words.labels))),
        record=("attention_logits", _columns(size, len(words.labels))),
        record_every=max(1, options.updates // RECORDS),
        progress=False,
    )
    logits = _flat(result, "attention_logits") + added
    gains = texts.gains(logits, words.speaks_for)
    columns = result["columns"].values[0, -1].astype(np.float64)
    return Trained(Course(result["step"].values.astype(np.float64), gains), logits[-1], columns)


def _flat(result: xr.Dataset, name: str) -> FloatArray:
    values = result[name].values
    return values.reshape(values.shape[1], -1).astype(np.float64)


def _columns(num_words: int, num_labels: int) -> Quantity:
    """Y's columns of the labels, and that of the first word, which all words have."""
    outputs = [*range(num_words + 1, num_words + 1 + num_labels), 0]

    def columns(now: Snapshot) -> ArrayLike:
        return now.decoder[:, 0, 0][:, :, outputs]

    return Quantity("columns", ("token", "answer"), columns, ("decoder",), coords={"answer": list(range(len(outputs)))})


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
    groups = {
        group: np.array([is_shortcut.get(int(i)) is wanted for i in chosen])
        for group, wanted in (("shortcut", True), ("unproven", False))
    }
    settings: list[tuple[str, int, str | None]] = [("as it is", len(texts), None)]
    settings += [
        (f"a prior of {options.prior:g} on {group} words", len(texts), group) for group in groups if groups[group].any()
    ]
    settings += [
        (f"{name} of the texts", max(1, len(texts) // part), None) for name, part in (("half", 2), ("a quarter", 4))
    ]
    with progress_bar("training attention", len(settings) + 1, progress) as show:
        show(0, "(endless texts)")
        population = population_course(words, options)
        runs = []
        for i, (name, size, group) in enumerate(settings):
            show(i + 1, f"({name})")
            prior = None if group is None else options.prior * groups[group]
            trained = train_on(words, texts[slice(size)], options, options.seed, prior)
            runs.append((trained, trained.outcome(name, size, held_out, groups)))
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
