"""What a run is said to have done is what its attention did."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.results.story import stories
from scansnap.results.summary import summarize


def _result(shares: list[list[float]], kinds: list[str]) -> xr.Dataset:
    """A run of one class with these shares of attention, one list for each record, two steps apart."""
    attention = np.array(shares, np.float32)[None, :, None, None, None]
    steps = 2 * np.arange(len(shares))
    return xr.Dataset(
        {"attention": (("run", "step", "layer", "head", "class", "token"), attention)},
        coords={
            "step": steps, "token_kind": ("token", kinds), "token_name": ("token", list("abcd")[: len(kinds)]),
            "next_token_name": ("class", ["end"]),
        },
    )  # fmt: skip


def test_it_says_when_common_tokens_began_to_lose_and_who_won() -> None:
    moving = [[0.5, 0.3, 0.2], [0.48, 0.32, 0.2], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.2, 0.6, 0.2], [0.1, 0.8, 0.1]]
    story = stories(_result(moving, ["common", "distinct", "distinct"]))[0]
    assert story.scan_step == 6  # at step 2 they had lost as much, but had it again at step 4
    assert [(w.token, w.kind, w.next_token) for w in story.winners] == [("b", "distinct", "end")]
    assert story.winners[0].share == pytest.approx(0.8)
    assert story.snap_step is None
    assert str(story).startswith(
        "common tokens began to lose at step 6 (50% → 10% of attention); most attended: token b for next token end "
        "(distinct, 80%); no snap (not yet: "
    )


def test_a_run_has_snapped_when_its_last_pattern_has_frozen() -> None:
    still = [[0.5, 0.5], [0.3, 0.7], [0.1, 0.9], *[[0.1, 0.9]] * 8]
    early = _result(still, ["common", "distinct"])
    late = _result([still[0], *still], ["common", "distinct"]).isel(step=slice(11))
    both = xr.concat([early, late], "class", data_vars="all", coords="minimal", compat="override")
    both = both.assign_coords(next_token_name=("class", ["x", "y"]))
    assert stories(early)[0].snap_step == 4
    story = stories(both)[0]
    assert (story.snap_step, story.frozen, story.patterns) == (6, 2, 2)
    assert str(story).endswith("snapped at step 6")


def test_without_common_tokens_it_says_so() -> None:
    story = stories(_result([[0.5, 0.5], [0.4, 0.6]], ["distinct", "distinct"]))[0]
    assert story.scan_step is None
    assert str(story).startswith("no token is common to several next tokens; ")


def test_common_tokens_that_gain_did_not_lose() -> None:
    story = stories(_result([[0.5, 0.5], [0.6, 0.4]], ["common", "distinct"]))[0]
    assert "common tokens did not lose (50% → 60% of attention)" in str(story)


def test_a_real_run_scans_and_snaps() -> None:
    experiment = ss.PUBLISHED["syn-small"]
    facts = summarize(ss.train(experiment.classes, experiment.options))[0]
    assert 2 <= facts["scan_step"] <= 10
    assert 30 <= facts["snap_step"] <= 40
    assert {winner["kind"] for winner in facts["winners"]} == {"distinct"}
    assert facts["story"].endswith(f"snapped at step {facts['snap_step']:g}")
