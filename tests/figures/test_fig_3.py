"""Figure 3: the growth factor of theory and dynamics."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.figures import fig_3


def test_dynamics_are_those_of_the_flow() -> None:
    dataset = fig_3.prepare(lr_y=[2.0])
    times = dataset["time"].values[[40, 80]]
    for gradient in ("true", "modified"):
        flow = ss.flow(
            ss.single_common(), lr_y=2.0, lr_z=0.5, times=times, decoder_gradient=gradient, record=("attention_logits",)
        )
        chi = np.exp(2 * flow["attention_logits"].sel(token=5).values[0, :, 0, 0, 0])
        factor = dataset["growth_factor"].sel(source=gradient, time=times).values[0]
        assert factor == pytest.approx(chi, rel=1e-5)


def test_true_sgd_reverses_the_order(prepare, trends_of) -> None:
    dataset = prepare("3")
    order = "After t₀ a smaller η_Y gives a larger growth factor ({})."
    trends = trends_of("3", dataset)
    assert [trends[order.format(source)].holds for source in fig_3.SOURCES] == [True, True, True, False]
    reversed_order = dataset.assign(
        growth_factor=dataset["growth_factor"].copy(data=dataset["growth_factor"].values[:, ::-1])
    )
    trends = trends_of("3", reversed_order)
    assert [trends[order.format(source)].holds for source in fig_3.SOURCES] == [False, False, False, True]


def test_other_trends_can_fail(prepare, trends_of) -> None:
    dataset = prepare("3")
    later, slower = "A smaller η_Y brings a later transition.", "After t₀ the growth factor grows more slowly (true)."
    trends = trends_of("3", dataset)
    assert trends[later].holds
    assert trends[slower].holds
    dataset["snap_start"].values[:] = dataset["snap_start"].values[::-1]
    assert not trends_of("3", dataset)[later].holds
    quadratic = dataset["growth_factor"].copy(data=np.broadcast_to(1 + dataset["time"].values ** 2, (4, 4, 121)))
    assert not trends_of("3", prepare("3").assign(growth_factor=quadratic))[slower].holds
