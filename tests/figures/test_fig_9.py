"""Figure 9: B_n at t_0 and after it."""

from __future__ import annotations

import numpy as np
import pytest

SAME, LARGER = "B_n(t₀) is the same for all rates ({}).", "After t₀ larger rates have the larger B_n ({})."
START = "B_n starts at 0, as its definition says ({})."


def test_the_dots_lie_on_the_lines(prepare) -> None:
    dataset = prepare("9")
    for rate in dataset["rate"].values:
        curve = dataset.sel(form="exact", rate=rate)
        on_line = np.interp(np.log(float(curve["snap_start"])), np.log(curve["time"]), curve["growth_bound"])
        assert on_line == pytest.approx(float(curve["at_snap"]), rel=1e-3)


@pytest.mark.parametrize("form", ["published", "exact"])
def test_trends_hold_and_can_fail(form: str, prepare, trends_of) -> None:
    dataset = prepare("9")
    trends = trends_of("9", dataset)
    assert trends[SAME.format(form)].holds
    assert trends[LARGER.format(form)].holds
    assert trends[START.format(form)].holds == (form == "exact")
    reversed_curves = dataset.assign(
        growth_bound=dataset["growth_bound"].copy(data=dataset["growth_bound"].values[:, ::-1])
    )
    assert not trends_of("9", reversed_curves)[LARGER.format(form)].holds
    dataset["at_snap"].values[:, 0] *= 1 + 1e-6
    assert not trends_of("9", dataset)[SAME.format(form)].holds
