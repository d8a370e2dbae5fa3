"""Every trend of a figure can fail: it holds on the figure's numbers, and not on numbers that contradict it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scansnap.figures import catalog
from tests.figures.conftest import Change, check_change, fill, flip, negate

LOST = "Every common token has lost in the end."
AHEAD = "The distinct token that was ahead takes over from the others."
FASTEST = "Attention moves fastest between t'₀ and t₀."
SLOWER = "Past t₀ attention moves ever more slowly."
FROZEN = "Past t₀ the pattern is all but frozen."
ORDER = "After t₀ a smaller η_Y gives a larger growth factor."
PER_RATE = (
    "The most probable distinct token gains attention (η_Y = {}).",
    "Common tokens lose attention (η_Y = {}).",
    "Attention becomes sparse (η_Y = {}).",
)
FALLS = "A larger η_Z lowers the entropy."
RISES = "With η_Z fixed a larger η_Y raises the entropy beyond η_Y/η_Z = 2."
SAME, LARGER = "B_n(t₀) is the same for all rates.", "After t₀ larger rates have the larger B_n."


def swap_winners(attention: NDArray[Any]) -> Any:
    """The two most probable distinct tokens of each class exchanged at the last step."""
    attention[:, :, -1][..., [18, 19, 28, 29]] = attention[:, :, -1][..., [19, 18, 29, 28]]
    return attention


def delay(moments: NDArray[Any]) -> Any:
    return moments + np.array([0, 100, 0, 0])


def spread_rate(values: NDArray[Any]) -> Any:
    return values * np.where(np.arange(values.shape[1]) == 0, 1 + 1e-6, 1.0)


CASES: list[tuple[str, dict[str, Change], list[str]]] = [
    ("2", {"logits": negate}, [LOST]),
    ("2", {"score": lambda values: 1 / values}, [AHEAD]),
    ("2", {"moment": delay}, [FASTEST]),
    ("2", {"speed": flip(1)}, [SLOWER]),
    ("3", {"growth_factor": flip(1)}, [ORDER]),
    ("3", {"snap_start": flip(0)}, ["A smaller η_Y brings a later transition."]),
    (
        "3",
        {"growth_factor": lambda values: np.broadcast_to(1 + np.geomspace(1, 1e6, 121) ** 2, values.shape)},
        ["After t₀ the growth factor grows more slowly."],
    ),
    (
        "4",
        dict.fromkeys(("attention", "entropy", "loss"), flip(2)),
        [statement.format(rate) for statement in PER_RATE for rate in (1, 10)],
    ),
    (
        "4",
        dict.fromkeys(("entropy", "loss"), flip(0)),
        ["A larger η_Y leaves attention less sparse.", "A larger η_Y converges faster."],
    ),
    ("4", {"attention": swap_winners}, ["Attention gathers on the most probable distinct token (η_Y = 1)."]),
    (
        "5",
        {"attention": lambda values: np.broadcast_to(values[:1], values.shape)},
        ["Different rates favor different subsets of 3 tokens."],
    ),
    ("8", {"gap": negate}, ["h* is never below h."]),
    ("8", {"gap": lambda values: 20 * values}, ["The gap is at most 2η_Y/M."]),
    ("8", {"gap": fill(1.0)}, ["The gap goes to zero."]),
    ("9", {"growth_bound": flip(1)}, [LARGER]),
    ("9", {"at_snap": spread_rate}, [SAME]),
]


@pytest.mark.parametrize(("name", "changes", "statements"), CASES)
def test_a_trend_holds_and_can_fail(name: str, changes: dict[str, Change], statements: list[str], prepare) -> None:
    check_change(catalog.recipe(name), prepare(name), changes, statements)


def test_frozen_is_measured(prepare) -> None:
    """More attention moves from t_0 to 10 t_0 than before t_0; were it the other way the trend would hold."""
    check_change(catalog.recipe("2"), prepare("2"), {"moved": flip(1)}, [FROZEN], holds=False)


def test_agreement_with_published_cells_can_fail(runs, trends_of) -> None:
    agrees = ("Our cells are the published ones.", "No single cell is off.")
    trends = trends_of("6", catalog.recipe("6").prepare(runs=runs))
    assert all(trends[statement].holds for statement in agrees)
    runs["entropy"] += 0.05
    trends = trends_of("6", catalog.recipe("6").prepare(runs=runs))
    assert not any(trends[statement].holds for statement in agrees)


def test_neighbors_of_the_grid_are_compared(prepare, trends_of) -> None:
    dataset = prepare("6")
    trends = trends_of("6", dataset)
    assert (trends[FALLS].expected, trends[RISES].expected) == ("48 of 48 comparisons", "32 of 32 comparisons")
    assert "fails" not in (trends[FALLS].verdict, trends[RISES].verdict)
    values = dataset["entropy"].values
    lower = trends_of("6", dataset.assign(entropy=dataset["entropy"].copy(data=values[:, ::-1])))
    assert (lower[FALLS].verdict, lower[RISES].verdict == "fails") == ("fails", False)
    higher = trends_of("6", dataset.assign(entropy=dataset["entropy"].copy(data=values[:, :, ::-1])))
    assert higher[RISES].verdict == "fails"
    dataset["entropy"].loc[{"num_query": 5, "lr_z": 2.0, "lr_y_over_lr_z": 10.0}] -= 1.0
    assert "5 queries, η_Z = 2, 5 → 10: -" in trends_of("6", dataset)[RISES].note  # an exception is named


@pytest.mark.parametrize(("number", "slower", "axis"), [("11", "A smaller η_Y/η_Z", 3), ("12", "A larger η_Z", 2)])
def test_recall_descends_more_slowly(number: str, slower: str, axis: int, prepare, trends_of) -> None:
    dataset, statement = prepare(number), f"{slower} makes recall descend more slowly."
    assert trends_of(number, dataset)[statement].measured >= 32  # of 48, with six seeds
    turned = dataset["descent"].copy(data=np.flip(dataset["descent"].values, axis))
    after = trends_of(number, dataset.assign(descent=turned))[statement]
    assert after.verdict == "fails"
    assert after.measured < 16


def test_descent_follows_the_published_entropies(prepare, trends_of) -> None:
    statement = "Recall descends faster where Figure 6's published entropy is higher."
    dataset = prepare("11")
    right, turned = (trends_of("11", dataset.assign(descent=s * dataset["descent"]))[statement] for s in (1, -1))
    assert (right.verdict, turned.verdict) == ("holds", "fails")
    assert min(right.measured, -turned.measured) > 0.7
