"""Measurements of attention against the weights themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scansnap.text import measures as module
from scansnap.text.corpus import Corpus
from scansnap.text.measures import AttentionMeasurement
from scansnap.text.options import TextShape
from scansnap.text.transformer import TextTransformer
from scansnap.text.windows import consecutive

pytestmark = pytest.mark.rounding


def model_and_windows(corpus: Corpus) -> tuple[TextTransformer, torch.Tensor]:
    torch.manual_seed(0)
    shape = TextShape(vocab_size=corpus.vocab_size, window=7, layers=2, heads=2, width=12, feed_forward=8)
    model = TextTransformer(shape)
    with torch.no_grad():
        for block in model.layers:
            block.query.weight *= 8
    return model, torch.from_numpy(consecutive(corpus.valid, 7)[:, :-1])


def test_means_are_over_the_rows_of_all_windows(corpus: Corpus, monkeypatch) -> None:
    monkeypatch.setitem(
        module.NUMBERS_AT_ONCE, "cpu", 3 * 7 * (2 * 7 + 3 * 12)
    )  # three windows at once, which do not divide their number
    model, windows = model_and_windows(corpus)
    means = AttentionMeasurement(model, windows).measure()
    for layer, weights in enumerate(model.attention(windows)):
        entropy = torch.special.entr(weights).sum(-1)  # (N, head, row)
        rows = {
            "entropy": entropy[..., 1:],
            "normalized_entropy": entropy[..., 1:] / torch.arange(2, 8).log(),
            "top_1": weights[:, :, 1:].amax(-1),
            "top_5": weights[:, :, 5:].sort(-1).values[..., -5:].sum(-1),
        }
        for name, values in rows.items():
            np.testing.assert_allclose(means[name][layer], values.mean((0, 2)), rtol=1e-5, err_msg=name)
    assert 0 < means["normalized_entropy"].min() < means["normalized_entropy"].max() < 1


def test_change_is_the_attention_that_moved(corpus: Corpus) -> None:
    model, windows = model_and_windows(corpus)
    measurement = AttentionMeasurement(model, windows)
    assert np.isnan(measurement.measure()["moved"]).all()
    assert not measurement.measure()["moved"].any()
    before = [w.clone() for w in model.attention(measurement.sample)]
    with torch.no_grad():
        model.layers[0].query.weight *= -1
    after = model.attention(measurement.sample)
    change = measurement.measure()["moved"]
    for layer in range(2):
        moved = 0.5 * (after[layer] - before[layer]).abs().sum(-1)[:, :, 1:].mean((0, 2))
        np.testing.assert_allclose(change[layer], moved.numpy(), rtol=1e-5)
    assert (change[0] > 0.05).all()
    pattern = measurement.pattern(3)
    for layer in range(2):
        np.testing.assert_allclose(pattern[layer], after[layer][:3].transpose(0, 1), rtol=1e-5, atol=1e-7)
    again = AttentionMeasurement(model, windows)
    again.restore(measurement.state())
    assert not again.measure()["moved"].any()


def test_measuring_does_not_change_the_model(corpus: Corpus) -> None:
    model, windows = model_and_windows(corpus)
    model.train()
    state = torch.get_rng_state()
    measurement = AttentionMeasurement(model, windows)
    _, first, second = measurement.measure(), measurement.measure(), measurement.measure()
    assert all(np.array_equal(first[name], second[name]) for name in first)  # no dropout
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
