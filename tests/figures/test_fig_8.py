"""Figure 8: the gap between h* and h, and bounds that can be broken."""

from __future__ import annotations

import numpy as np

from scansnap import theory
from scansnap.figures import fig_8


def test_numbers() -> None:
    dataset = fig_8.prepare(lr_y=[0.5], vocab_size=100, steps=300)
    steps = dataset["step"].values
    assert steps[-1] == 300
    h = theory.decoder_growth(steps, vocab_size=100, lr_y=0.5)
    assert np.allclose(dataset["stepwise"].values[0] - dataset["gap"].values[0] * 0.5 / 100, h, rtol=1e-12)


def test_trends_hold_and_can_fail(prepare, trends_of) -> None:
    dataset = prepare("8")
    trends = trends_of("8", dataset)
    assert all(trend.holds for trend in trends.values())
    below, above, limit, rate = trends
    assert not trends_of("8", dataset.assign(gap=-dataset["gap"]))[below].holds
    assert not trends_of("8", dataset.assign(gap=20 * dataset["gap"]))[above].holds
    steady = trends_of("8", dataset.assign(gap=0 * dataset["gap"] + 1))
    assert not steady[limit].holds
    assert not steady[rate].holds
