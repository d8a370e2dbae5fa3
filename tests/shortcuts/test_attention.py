"""Attention to words: gains against their definition, and which words training picks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scansnap as ss
from scansnap.shortcuts.attention import PICKED, gains_of, picks
from tests.shortcuts.labeled_rows import rows


def test_gains_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    has_word = (rng.random((60, 4)) < 0.5).astype(np.int32)
    has_word[:, 0] = 1
    labels = rng.integers(2, size=60)
    logits, speaks_for = np.array([0.3, 1.2, -0.4, 0.9]), np.array([0, 1, 0, 0])
    (gains,) = gains_of(has_word, labels, logits[None], speaks_for)
    for word in range(4):
        of_texts = []
        for row, label in zip(has_word, labels, strict=True):
            if row[word] and label == speaks_for[word]:
                total = sum(math.exp(z) for z, has in zip(logits, row, strict=True) if has)
                of_texts.append(sum(row) * math.exp(logits[word]) / total)
        assert gains[word] == pytest.approx(np.mean(of_texts))
    assert gains_of(has_word, labels, np.zeros((2, 4)), speaks_for) == pytest.approx(np.ones((2, 4)))
    # beside a word at 900, exp(z) of the others is 0 in any floating-point number; no text has the last word
    far_apart = np.array([[900.0, 0.0, math.log(3.0), -900.0]])
    has_word = np.array([[1, 1, 0, 0], [0, 1, 1, 0]], np.int32)
    (gains,) = gains_of(has_word, np.array([0, 1]), far_apart, np.array([0, 1, 1, 0]))
    assert gains == pytest.approx([2.0, 0.5, 1.5, math.nan], nan_ok=True)


def test_when_a_word_is_picked() -> None:
    gains = np.array([[1.0, 1.0, 1.0], [2.5, 1.9, np.nan], [1.5, PICKED, np.nan], [1.0, 4.0, np.nan]])
    assert list(picks(np.array([0, 10, 20, 30]), gains)) == [(2.5, 10), (4.0, 20), (None, None)]


def test_planted_words_are_picked_whatever_the_order_of_rows() -> None:
    """Texts are drawn at random, so that a sample of a file that is sorted by label has both labels."""
    content = rows(1200, magic=(300, 1.0), other=(300, 0.0))
    in_order = sorted(content, key=lambda row: row["label"])
    for data in (content, in_order):
        result = ss.shortcuts(
            data, text="text", label="label", attention=True, updates=1000, vocabulary=40, sample=500, progress=False
        )
        by_name = {finding.name: finding for finding in result.findings}
        assert by_name["magic"].picked_at is not None
        assert by_name["other"].picked_at is not None
        unproven = [finding.gain for finding in result.unproven if finding.gain is not None]
        assert min(by_name["magic"].gain, by_name["other"].gain) > np.median(unproven)
