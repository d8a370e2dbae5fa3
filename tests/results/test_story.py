"""What a run is said to have done is what its attention did."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap import theory
from scansnap.results.story import momentum_note, stories, summarize


def _result(shares: list[list[float]], kinds: list[str]) -> xr.Dataset:
    """A run of one class with these shares of attention, one list for each record, two steps apart."""
    attention = np.array(shares, np.float32)[None, :, None, None, None]
    steps = 2 * np.arange(len(shares))
    return xr.Dataset(
        {"attention": (("run", "step", "layer", "head", "class", "token"), attention)},
        coords={
            "step": steps,
            "token_kind": ("token", kinds),
            "token_name": ("token", list("abcd")[: len(kinds)]),
            "next_token_name": ("class", ["end"]),
        },
    )


def test_options_that_are_not_usual_are_said() -> None:
    options = {"lr_y": 1.0, "lr_z": 1.0, "steps": 2, "progress": False}
    assert summarize(ss.train("syn-small", **options))[0]["options"] == ""
    other = ss.train("syn-small", **options, schedule="cosine", weight_decay=0.1, residual=True, heads=2)
    assert summarize(other)[0]["options"] == "schedule cosine, weight decay 0.1, heads 2, residual"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"momentum": 0.9}, ("Momentum 0.9 can keep attention moving", "train 60 steps with momentum 0.")),
        ({"optimizer": ss.SGD(momentum=0.5)}, ("Momentum 0.5 can keep attention moving", "train 12 steps with")),
        ({"momentum": 0.0}, None),
        ({"optimizer": "adam"}, None),
    ],
)
def test_momentum_is_named_as_a_cause(options: dict[str, object], words: tuple[str, str] | None) -> None:
    note = momentum_note(ss.train("syn-small", lr_y=10.0, lr_z=20.0, steps=6, **options).attrs)
    if words is None:
        assert note is None
    else:
        assert note is not None
        assert all(part in note for part in words)


def test_a_flow_and_results_of_unknown_origin_have_no_note_on_momentum() -> None:
    flow = ss.flow("syn-small", lr_y=1.0, lr_z=1.0, times=[1, 10, 100])
    for attrs in (flow.attrs, {}, *({"options": json.dumps(o)} for o in ({}, {"momentum": 0.9}, {"momentum": 1.0}))):
        assert momentum_note(attrs) is None


def test_it_says_when_common_tokens_began_to_lose_and_who_won() -> None:
    moving = [[0.5, 0.3, 0.2], [0.48, 0.32, 0.2], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.2, 0.6, 0.2], [0.1, 0.8, 0.1]]
    story = stories(_result(moving, ["common", "distinct", "distinct"]))[0]
    assert story.scan_step == 6  # at step 2 they had lost as much, but had it again at step 4
    assert [(w.token, w.kind, w.next_token) for w in story.winners] == [("b", "distinct", "end")]
    assert story.winners[0].share == pytest.approx(0.8)
    assert story.snap_step is None
    assert story.sentences[:2] == [
        "Common tokens lost attention from step 6 on: their share went from 50% to 10%.",
        "Most attended: token b for next token end (distinct, 80%).",
    ]
    assert story.sentences[2].startswith("No snap (not yet: ")


def test_a_run_has_snapped_when_its_last_pattern_has_frozen() -> None:
    still = [[0.5, 0.5], [0.3, 0.7], [0.1, 0.9], *[[0.1, 0.9]] * 8]
    early = _result(still, ["common", "distinct"])
    late = _result([still[0], *still], ["common", "distinct"]).isel(step=slice(11))
    both = xr.concat([early, late], "class", data_vars="all", coords="minimal", compat="override")
    both = both.assign_coords(next_token_name=("class", ["x", "y"]))
    assert stories(early)[0].snap_step == 4
    story = stories(both)[0]
    assert (story.snap_step, story.frozen, story.patterns) == (6, 2, 2)
    assert story.sentences[-1] == "Attention snapped by step 6 (less than 1% of it moved after that)."


def test_a_pattern_that_slides_back_has_only_slowed() -> None:
    """Sixty small steps back, each a twentieth of the peak, undo most of what the scan did."""
    there = [[0.5, 0.5], [0.3, 0.7], [0.1, 0.9]]
    slide = [[0.1 + 0.005 * k, 0.9 - 0.005 * k] for k in range(1, 61)]
    still = _result([*there, *[[0.1, 0.9]] * 60], ["common", "distinct"])
    sliding = _result([*there, *slide], ["common", "distinct"])
    assert stories(sliding)[0].sentences[-1] == (
        "Attention slowed at step 4 but did not snap: 30% of it moved after that, more than 20% of the 40% before."
    )
    both = xr.concat([still, sliding], "class", data_vars="all", coords="minimal", compat="override")
    both = both.assign_coords(next_token_name=("class", ["x", "y"]))
    story = stories(both)[0]
    assert (story.snap_step, story.status, story.frozen, story.patterns) == (4, "slowed", 1, 2)
    assert story.moved_since == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("first", "last", "kinds", "sentence"),
    [
        (
            [0.5, 0.3, 0.2],
            [0.1, 0.46, 0.44],
            "cdd",
            "end (distinct, 46%; token c is close with 44%).",
        ),
        ([0.5, 0.3, 0.2], [0.0, 0.6, 0.4], "cdd", "Most attended: token b for next token end (distinct, 60%)."),
        (
            [0.5, 0.5],
            [0.48, 0.52],
            "cd",
            "tokens lost attention from step 2 on: their share went from 50% to 48%.",
        ),
        ([0.5, 0.5], [0.48, 0.52], "cd", "No snap (hardly moved: less than 5% of attention in all"),
        ([0.5, 0.5], [0.48, 0.52], "cd", "): train longer, or with a larger lr_z."),
        ([0.5, 0.5], [0.499, 0.501], "cd", "Common tokens lost less than 1% of attention: their share stayed at 50%."),
        (
            [0.5, 0.5],
            [0.6, 0.4],
            "cd",
            "tokens lost less than 1% of attention: their share went from 50% to 60%.",
        ),
        ([0.5, 0.5], [0.4, 0.6], "dd", "No token is common to several next tokens."),
    ],
)
def test_sentences(first: list[float], last: list[float], kinds: str, sentence: str) -> None:
    """Of a run that moves once: from its first record to all five others."""
    names = {"c": "common", "d": "distinct"}
    assert sentence in " ".join(stories(_result([first, *[last] * 5], [names[kind] for kind in kinds]))[0].sentences)


def test_a_real_run_scans_and_snaps() -> None:
    experiment = ss.PUBLISHED["syn-small"]
    facts = summarize(ss.train(experiment.classes, **vars(experiment.options)))[0]
    assert 2 <= facts["scan_step"] <= 10
    assert 30 <= facts["snap_step"] <= 40
    assert {winner["kind"] for winner in facts["winners"]} == {"distinct"}
    assert (facts["snap_status"], facts["moved_since"]) == ("frozen", pytest.approx(0.02, abs=0.01))
    moved = f"at most {facts['moved_since']:.0%} of it moved after that"
    assert facts["story"][-1] == f"Attention snapped by step {facts['snap_step']:g} ({moved})."


def test_classes_that_share_every_token_have_a_story_by_degrees() -> None:
    rng = np.random.default_rng(0)
    probs = np.zeros((3, 18))
    probs[:, :12] = [rng.permutation(1 / np.arange(1, 13)) for _ in range(3)]
    probs /= probs.sum(1, keepdims=True)
    dense = ss.SequenceClasses(probs=probs, query=[12, 13, 14], next_token=[15, 16, 17], vocab_size=18)
    run = ss.train(dense, lr_y=5.0, lr_z=20.0, steps=60, momentum=0.9)
    facts = summarize(run)[0]
    assert facts["entropy_first"] is None
    assert np.isfinite([facts["favored_entropy_first"], facts["favored_entropy_last"]]).all()
    assert facts["favored_last"] > facts["favored_first"] + 0.1
    best = theory.distinctness(probs).argmax(1)
    kinds, scan, winners, _ = facts["story"]
    named = [
        f"token {token} for next token {n}{_degree(probs, n - 15)}" for token, n in zip(best, (15, 16, 17), strict=True)
    ]
    assert kinds == f"Classes share every token, so none is distinct; the most distinct: {', '.join(named)}."
    assert scan.startswith("Tokens that are not favored lost attention from step ")
    favored = ss.measure.favored(run)
    for n, winner in enumerate(facts["winners"]):
        assert bool(favored.isel({"class": n}).sel(token=int(winner["token"])))
        assert winner["distinctness"] == pytest.approx(theory.distinctness(probs)[n, int(winner["token"])])
        assert f"(common, distinctness {winner['distinctness']:.2f}, " in winners
    assert "nan" not in " ".join(facts["story"])


def _degree(probs: np.ndarray, n: int) -> str:
    return f" ({theory.distinctness(probs)[n].max():.2f})"


def test_classes_that_are_alike_have_no_favored_token() -> None:
    probs = np.tile([0.5, 0.3, 0.2, 0, 0, 0, 0], (2, 1))
    alike = ss.SequenceClasses(probs=probs, query=[3, 4], next_token=[5, 6], vocab_size=7)
    facts = summarize(ss.train(alike, lr_y=1.0, lr_z=1.0, steps=4))[0]
    assert "No token is favored by any class." in facts["story"]
    assert facts["favored_entropy_first"] is None


def test_favored_entropy_is_distinct_entropy_where_distinct_tokens_are_favored() -> None:
    run = ss.train("syn-medium-3", lr_y=1.0, lr_z=1.0, steps=5)
    np.testing.assert_array_equal(ss.measure.favored_entropy(run), ss.measure.distinct_entropy(run))
    one_class = run.isel({"class": [2]})
    assert (ss.measure.favored(one_class).values == (ss.measure.distinctness(one_class).values == 1)).all()
    with pytest.raises(ss.InputError, match="does not name its classes"):
        ss.measure.favored(run.drop_attrs())
    grid = ss.sweep("syn-small", lr_y=[1, 2], lr_z=1, steps=2, record=["attention"])
    assert ss.measure.favored_entropy(grid).notnull().all()


def test_the_second_token_and_the_order_of_the_sentences() -> None:
    """Also where the second is not close, and where nothing is common."""
    story = stories(_result([[0.5, 0.3, 0.2], *[[0.0, 0.6, 0.4]] * 5], ["common", "distinct", "distinct"]))[0]
    assert (story.winners[0].second, story.winners[0].second_share) == ("c", pytest.approx(0.4))
    assert story.sentences[0].startswith("Common tokens lost attention")
    assert story.sentences[-1].startswith(("Attention ", "No snap"))
    assert stories(_result([[0.5, 0.5], [0.4, 0.6]], ["distinct", "distinct"]))[0].scan_step is None
