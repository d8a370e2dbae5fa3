"""Figure 5: who wins under Adam, and the permutation test behind it."""

from __future__ import annotations

import numpy as np

from scansnap.figures.fig_5 import shuffled


def test_trends_hold_and_can_fail(prepare, trends_of) -> None:
    dataset = prepare("5")
    trends = trends_of("5", dataset)
    assert trends["Different rates make different distinct tokens win."].holds
    assert trends["Different rates favor different subsets of 3 tokens."].holds
    dataset["attention"].values[:] = dataset["attention"].values[:1]
    assert not any(trend.holds for trend in trends_of("5", dataset).values())


def test_shuffled_by_hand() -> None:
    """Two rates that never agree over 5 seeds: of 2^5 ways to exchange them 2 are as extreme; V is one."""
    size, p = shuffled(np.array([[0] * 5, [1] * 5]), np.random.default_rng(0))
    assert size == 1.0
    assert abs(p - 2 / 32) < 0.01  # 9,999 shuffles: four standard errors
    assert shuffled(np.zeros((3, 5), int), np.random.default_rng(0)) == (0.0, 1.0)


def test_winners_are_counted(prepare) -> None:
    dataset = prepare("5")
    assert np.allclose(dataset["won"].sum("token"), 1)
    assert dataset["attention"].sizes["token"] == 10
    total = dataset["attention"].sum("token") + dataset["common"]
    assert np.allclose(total, 1, atol=1e-5)
