"""The picture of any system's runs, and what is said of them."""

from __future__ import annotations

import scansnap as ss
from scansnap.figures import over_time
from scansnap.papers.joma import JoMA


def test_a_quantity_that_turns_is_told_with_its_turn() -> None:
    """The entropy of JoMA's attention falls and rises; the loss falls, and each run has its line in both panels."""
    rates = {"lr_v": 1.0, "lr_z": 100.0, "times": [0, 10, 100, 2e3]}
    flow = ss.flow(JoMA(concentration=0.3), **rates, seeds=[0, 5], record=("loss", "entropy"), progress=False)
    entropy = flow["entropy"].squeeze("query").values
    for run, told in enumerate(over_time.changes(flow)):
        lowest = int(entropy[run].argmin())
        assert told["changes"]["entropy"] == {
            "first": entropy[run, 0],
            "last": entropy[run, -1],
            "turn": entropy[run, lowest],
            "turned_at": flow["time"].values[lowest],
        }
        assert set(told["changes"]["loss"]) == {"first", "last"}
    assert [len(axes.lines) for axes in over_time.draw(flow).axes] == [2, 2]
