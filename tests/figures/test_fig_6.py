"""Figure 6: the published cells, and trends that can fail."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.figures import fig_6

AGREES = ("Our cells are the published ones.", "No single cell is off.")
FALLS = "A larger η_Z lowers the entropy."
RISES = "With η_Z fixed a larger η_Y raises the entropy beyond η_Y/η_Z = 2."


def test_scores_by_hand(prepare) -> None:
    dataset = prepare("6")
    assert int(dataset["score"].count()) == 32
    values = dataset["entropy"].sel(num_query=3, lr_z=2.0, lr_y_over_lr_z=5.0).values
    error = np.sqrt(0.018**2 / 10 + values.var(ddof=1) / len(values))
    score = dataset["score"].sel(num_query=3, lr_z=2.0, lr_y_over_lr_z=5.0)
    assert float(score) == pytest.approx((values.mean() - 1.899) / error)


def test_agreement_can_fail(runs, trends_of) -> None:
    trends = trends_of("6", fig_6.prepare(runs=runs))
    assert all(trends[statement].holds for statement in AGREES)
    runs["entropy"] += 0.05
    trends = trends_of("6", fig_6.prepare(runs=runs))
    assert not any(trends[statement].holds for statement in AGREES)


def test_trends_can_fail(prepare, trends_of) -> None:
    dataset = prepare("6")
    trends = trends_of("6", dataset)
    assert trends[FALLS].verdict != "fails"
    assert trends[RISES].verdict != "fails"
    assert trends[FALLS].expected == "48 of 48 comparisons"
    assert trends[RISES].expected == "32 of 32 comparisons"
    values = dataset["entropy"].values
    reversed_trends = trends_of("6", dataset.assign(entropy=dataset["entropy"].copy(data=values[:, ::-1])))
    assert reversed_trends[FALLS].verdict == "fails"
    assert reversed_trends[RISES].verdict != "fails"
    reversed_trends = trends_of("6", dataset.assign(entropy=dataset["entropy"].copy(data=values[:, :, ::-1])))
    assert reversed_trends[RISES].verdict == "fails"


def test_an_exception_is_named(prepare, trends_of) -> None:
    dataset = prepare("6")
    dataset["entropy"].loc[{"num_query": 5, "lr_z": 2.0, "lr_y_over_lr_z": 10.0}] -= 1.0
    assert "5 queries, η_Z = 2, 5 → 10: -" in trends_of("6", dataset)[RISES].note
