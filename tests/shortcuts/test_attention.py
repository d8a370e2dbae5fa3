"""Attention to words: gains, loss and columns of Y against the definition and against `train`'s own measures."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scansnap as ss
from scansnap.shortcuts.attention import (
    PICKED,
    Course,
    LabeledTexts,
    ReadWords,
    Texts,
    _columns,
    population_course,
    train_on,
)
from scansnap.shortcuts.counting import SampledText
from scansnap.shortcuts.options import ShortcutOptions

NAMES = ("the", "good", "bad", "film")


@pytest.fixture(scope="module")
def words() -> ReadWords:
    return ReadWords(
        NAMES,
        ("neg", "pos"),
        np.array([[60, 50], [5, 40], [45, 0], [20, 20]]),
        np.array([70, 60]),
        np.array([0, 1, 0, 0]),
    )


@pytest.fixture(scope="module")
def texts(words: ReadWords) -> Texts:
    rng = np.random.default_rng(0)
    probs = np.array([[0.9, 0.1, 0.5, 0.3], [0.9, 0.6, 0.05, 0.3]])
    sampled = [
        SampledText(label, (*np.array(NAMES)[rng.random(4) < probs[label]], "unread"))
        for label in rng.integers(2, size=60).tolist()
    ]
    return words.read(sampled, ("neg", "pos"))


def test_texts_are_read_and_classes_are_the_shares_of_words(words: ReadWords) -> None:
    """Without words that the model does not know, labels that it does not know, and texts that have nothing left."""
    sampled = [
        SampledText(2, ("bad", "film", "new")),
        SampledText(1, ("the",)),
        SampledText(0, ("new",)),
        SampledText(1, ("good",)),
    ]
    texts = words.read(sampled, ("neutral", "pos", "neg"))
    assert texts.has_word.tolist() == [[0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert texts.label.tolist() == [0, 1, 1]
    classes = words.classes()
    assert classes.probs[0, :4].tolist() == [60 / 130, 5 / 130, 45 / 130, 20 / 130]
    assert classes.weights.tolist() == [70 / 130, 60 / 130]
    assert [classes.name(int(token)) for token in classes.next_token] == ["neg", "pos"]
    assert classes.distinct_tokens(0).tolist() == [2]  # bad
    assert len(words.classes(everywhere=True).support(1)) == 4


def test_gains_are_those_of_the_definition(texts: Texts) -> None:
    logits, speaks_for = np.array([0.3, 1.2, -0.4, 0.9]), np.array([0, 1, 0, 0])
    (gains,) = texts.gains(logits[None], speaks_for)
    for word in range(4):
        of_texts = []
        for row, label in zip(texts.has_word, texts.label, strict=True):
            if row[word] and label == speaks_for[word]:
                even = sum(row)
                of_texts.append(even * math.exp(logits[word]) / sum(math.exp(z) for z, n in zip(logits, row) if n))  # noqa: B905
        assert gains[word] == pytest.approx(np.mean(of_texts))
    alone = Texts(texts.has_word[:1] * 0 + [1, 0, 0, 0], texts.label[:1] * 0)
    assert np.isnan(alone.gains(logits[None], speaks_for)).tolist() == [[False, True, True, True]]
    assert texts.gains(np.zeros((2, 4)), speaks_for) == pytest.approx(np.ones((2, 4)))


def test_loss_and_accuracy_are_those_of_training(words: ReadWords, texts: Texts) -> None:
    """On the whole set, which `train` measures by itself with all columns of Y."""
    source = LabeledTexts(words.classes(everywhere=True), texts)
    run = ss.train(
        source,
        lr_y=1.0,
        lr_z=1.0,
        steps=40,
        batch_size=None,
        num_sequences=len(texts),
        seq_len=5,
        record=("loss", "accuracy", "attention_logits", "decoder", _columns(4, 2)),
        record_every=20,
    )
    for step in range(3):
        logits, columns = run["attention_logits"].values[0, step].ravel(), run["columns"].values[0, step]
        loss, accuracy = texts.measure(logits, columns, 4)
        assert loss == pytest.approx(run["loss"].values[0, step], rel=1e-5)
        if step:  # at the start all labels are equal
            assert accuracy == pytest.approx(run["accuracy"].values[0, step])
    decoder = run["decoder"].values[0, -1, 0, 0]
    assert np.abs(decoder[:, :5] - decoder[:, :1]).max() < 1e-6  # words and the query are never next


def test_population_gains_are_attention_over_shares(words: ReadWords) -> None:
    options = ShortcutOptions(lr_y=1.0, lr_z=0.5)
    course = population_course(words, options)
    run = ss.flow(words.classes(), lr_y=1.0, lr_z=0.5, times=course.times, record="attention", rtol=1e-6, atol=1e-8)
    attention = run["attention"].values[0, :, 0, 0]  # (time, class, token)
    probs = words.classes().probs[:, :4]
    for word, label in enumerate(words.speaks_for):
        assert course.gains[:, word] == pytest.approx(attention[:, label, word] / probs[label, word], rel=1e-4)


def test_a_prior_is_in_the_logits(words: ReadWords, texts: Texts) -> None:
    options = ShortcutOptions(updates=20, batch_size=8)
    prior = np.array([0.0, 0.0, -4.0, 0.0])
    plain, held_back = (train_on(words, texts, options, 0, added) for added in (None, prior))
    assert plain.course.gains[0] == pytest.approx(np.ones(4))
    assert held_back.course.gains[0, 2] < 0.2
    assert held_back.logits[2] == pytest.approx(plain.logits[2] - 4, abs=0.5)
    kinds = {"shortcut": np.array([0, 1, 1, 0], bool), "unproven": np.zeros(4, bool)}
    outcomes = [run.outcome("", len(texts), texts, kinds) for run in (plain, held_back)]
    assert outcomes[0].on_shortcuts > outcomes[1].on_shortcuts > 0
    assert outcomes[0].on_unproven == 0


def test_logits_may_be_as_far_apart_as_a_prior_puts_them() -> None:
    """Beside a word at 900, exp(z) of the others is 0 in any floating-point number: a text may have no other."""
    texts = Texts(np.array([[1, 1, 0, 0], [0, 1, 1, 0]], np.int32), np.array([0, 1]))
    logits = np.array([900.0, 0.0, math.log(3.0), -900.0])
    assert texts.attention(logits) == pytest.approx(np.array([[1, 0, 0, 0], [0, 0.25, 0.75, 0]]))
    (gains,) = texts.gains(logits[None], np.array([0, 1, 1, 0]))
    assert gains[:3] == pytest.approx([2.0, 0.5, 1.5])
    loss, accuracy = texts.measure(logits, np.eye(4, 3), 4)
    assert math.isfinite(loss)
    assert accuracy == 1.0


def test_when_a_word_is_picked() -> None:
    gains = np.array([[1.0, 1.0, 1.0], [2.5, 1.9, np.nan], [1.5, PICKED, np.nan], [1.0, 4.0, np.nan]])
    course = Course(np.array([0.0, 10, 20, 30]), gains)
    assert course.picked_at()[:2].tolist() == [10, 20]
    assert np.isnan(course.picked_at()[2])
    assert course.largest()[:2].tolist() == [2.5, 4.0]
