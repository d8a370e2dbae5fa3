"""Figure 4: fates of tokens, the two rates, and the published loss."""

from __future__ import annotations

import numpy as np

from scansnap.figures import catalog
from scansnap.figures.fig_4 import surprise


def test_trends_hold_and_can_fail(prepare, trends_of) -> None:
    dataset = prepare("4")
    assert all(trend.holds for trend in trends_of("4", dataset).values())
    backwards = dataset.copy(deep=True)
    for name in ("attention", "entropy", "loss"):
        backwards[name].values[:] = dataset[name].values[:, :, ::-1]
    trends = trends_of("4", backwards)
    for rate in (1, 10):
        assert not trends[f"The most probable distinct token gains attention (η_Y = {rate})."].holds
        assert not trends[f"Common tokens lose attention (η_Y = {rate})."].holds
        assert not trends[f"Attention becomes sparse (η_Y = {rate})."].holds
    swapped = dataset.copy(deep=True)
    for name in ("entropy", "loss"):
        swapped[name].values[:] = dataset[name].values[::-1]
    trends = trends_of("4", swapped)
    assert not trends["A larger η_Y leaves attention less sparse."].holds
    assert not trends["A larger η_Y converges faster."].holds


def test_another_winner_is_noticed(prepare, trends_of) -> None:
    dataset = prepare("4")
    last = dataset["attention"].isel(step=-1).values
    last[..., [18, 19, 28, 29]] = last[..., [19, 18, 29, 28]]
    trends = trends_of("4", dataset)
    assert not trends["Attention gathers on the most probable distinct token (η_Y = 1)."].holds


def test_each_rate_has_a_scale_of_its_own(prepare) -> None:
    """Attention at η_Y = 10 is at most 0.6 of that at η_Y = 1, and was all gray on one scale."""
    dataset = prepare("4")
    tops = dataset["attention"].isel(seed=0).max(("step", "class", "token")).values
    drawn = [axes.collections[0].get_clim()[1] for axes in catalog.recipe("4").draw(dataset).axes if axes.collections]
    assert set(np.float32(tops)) <= set(np.float32(drawn))


def test_surprise_is_a_p_value() -> None:
    """Curves from one law are surprising at 10% in a tenth of cases: 400 of them, false alarm below 1e-6."""
    rng = np.random.default_rng(0)
    curves = rng.normal(size=(500, 20)).cumsum(1)
    ranks = [surprise(curves, curve) for curve in rng.normal(size=(400, 20)).cumsum(1)]
    assert 0.03 < np.mean(np.array(ranks) <= 0.1) < 0.2
    assert surprise(curves, curves[0] + 30) == 1 / 501
