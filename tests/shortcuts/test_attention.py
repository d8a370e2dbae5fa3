"""Attention to words: gains, loss and columns of Y against the definition and against `train`'s own measures."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scansnap as ss
from scansnap.shortcuts.attention import PICKED, FixedTexts, ReadTexts, Trained, _classes, _columns, train_on
from scansnap.shortcuts.options import ShortcutOptions
from tests.shortcuts.labelled_rows import rows

NAMES = ["the", "good", "bad", "film"]
SPEAKS_FOR = np.array([0, 1, 0, 0])
CLASSES = _classes(NAMES, ("neg", "pos"), np.array([[60, 50], [5, 40], [45, 0], [20, 20]]), np.array([70, 60]))


@pytest.fixture(scope="module")
def texts() -> ReadTexts:
    rng = np.random.default_rng(0)
    probs = np.array([[0.9, 0.1, 0.5, 0.3], [0.9, 0.6, 0.05, 0.3]])
    label = rng.integers(2, size=60)
    has_word = (rng.random((60, 4)) < probs[label]).astype(np.int32)
    return ReadTexts(has_word[has_word.any(axis=1)], label[has_word.any(axis=1)])


def test_gains_are_those_of_the_definition(texts: ReadTexts) -> None:
    logits, speaks_for = np.array([0.3, 1.2, -0.4, 0.9]), np.array([0, 1, 0, 0])
    (gains,) = texts.gains(logits[None], speaks_for)
    for word in range(4):
        of_texts = []
        for row, label in zip(texts.has_word, texts.label, strict=True):
            if row[word] and label == speaks_for[word]:
                even = sum(row)
                of_texts.append(even * math.exp(logits[word]) / sum(math.exp(z) for z, n in zip(logits, row) if n))  # noqa: B905
        assert gains[word] == pytest.approx(np.mean(of_texts))
    alone = ReadTexts(texts.has_word[:1] * 0 + [1, 0, 0, 0], texts.label[:1] * 0)
    assert np.isnan(alone.gains(logits[None], speaks_for)).tolist() == [[False, True, True, True]]
    assert texts.gains(np.zeros((2, 4)), speaks_for) == pytest.approx(np.ones((2, 4)))


def test_loss_and_accuracy_are_those_of_training(texts: ReadTexts) -> None:
    """On the whole set, which `train` measures by itself with all columns of Y."""
    source = FixedTexts(CLASSES, texts)
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


def test_a_prior_is_in_the_logits(texts: ReadTexts) -> None:
    options = ShortcutOptions(updates=20, batch_size=8)
    prior = np.array([0.0, 0.0, -4.0, 0.0])
    plain, held_back = (train_on(CLASSES, texts, SPEAKS_FOR, options, 0, added) for added in (None, prior))
    assert plain.gains[0] == pytest.approx(np.ones(4))
    assert held_back.gains[0, 2] < 0.2
    assert held_back.logits[2] == pytest.approx(plain.logits[2] - 4, abs=0.5)
    outcomes = [run.outcome("", len(texts), texts, np.array([0, 1, 1, 0], bool)) for run in (plain, held_back)]
    assert outcomes[0].on_shortcuts > outcomes[1].on_shortcuts > 0


def test_logits_may_be_as_far_apart_as_a_prior_puts_them() -> None:
    """Beside a word at 900, exp(z) of the others is 0 in any floating-point number: a text may have no other."""
    texts = ReadTexts(np.array([[1, 1, 0, 0], [0, 1, 1, 0]], np.int32), np.array([0, 1]))
    logits = np.array([900.0, 0.0, math.log(3.0), -900.0])
    assert texts.attention(logits) == pytest.approx(np.array([[1, 0, 0, 0], [0, 0.25, 0.75, 0]]))
    (gains,) = texts.gains(logits[None], np.array([0, 1, 1, 0]))
    assert gains[:3] == pytest.approx([2.0, 0.5, 1.5])
    loss, accuracy = texts.measure(logits, np.eye(4, 3), 4)
    assert math.isfinite(loss)
    assert accuracy == 1.0


def test_when_a_word_is_picked() -> None:
    gains = np.array([[1.0, 1.0, 1.0], [2.5, 1.9, np.nan], [1.5, PICKED, np.nan], [1.0, 4.0, np.nan]])
    trained = Trained(np.array([0.0, 10, 20, 30]), gains, np.zeros(3), np.zeros((3, 3)))
    assert trained.picked_at()[:2].tolist() == [10, 20]
    assert np.isnan(trained.picked_at()[2])
    assert trained.largest()[:2].tolist() == [2.5, 4.0]


def test_rows_sorted_by_label_train_as_well_as_shuffled_ones() -> None:
    """Parts of the texts are drawn at random: half of a sorted file has both labels."""
    content = rows(1200, magic=(300, 1.0), other=(300, 0.0))
    in_order = sorted(content, key=lambda row: row["label"])
    options = {"attention": True, "updates": 300, "vocabulary": 40}
    found = [ss.shortcuts(data, text="text", label="label", progress=False, **options) for data in (content, in_order)]
    for result in found:
        assert [outcome.name for outcome in result.outcomes][-2:] == ["half of the texts", "a quarter of the texts"]
        assert all(outcome.accuracy > 0.65 for outcome in result.outcomes if "prior" not in outcome.name)
        by_name = {finding.name: finding for finding in result.findings}
        assert by_name["magic"].gain is not None
