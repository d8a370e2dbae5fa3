"""Verdicts on heads that are of a kind, on heads that are just not, and on random ones."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from scansnap.monitor.verdict_rules import HEAD_VERDICTS, HeadHistory, head_verdict, rescale_weight
from scansnap.monitor.verdicts import HeadVerdict, by_kind, headline, judge_heads, unjudged_verdicts
from tests.monitor.given_attention import (
    Weights,
    anywhere,
    even,
    first,
    join,
    missing,
    on_key,
    previous,
    series,
    snapshot,
    softmax,
)

LENGTHS = (6, 24, 96)


def heads(*weights: Weights) -> Weights:
    """One layer with these heads."""
    return np.stack(weights)[None]


def names(dataset: xr.Dataset, head: int = 0) -> set[str]:
    return {v.name for v in judge_heads(dataset) if v.head == head}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("name", "kind"), [("sink", first), ("previous-token", previous)])
def test_a_head_is_named_from_half_on(length: int, name: str, kind) -> None:
    """The weight beyond an even share is the threshold, exactly."""
    assert name in names(snapshot(0, heads(kind(length, 0.51))))
    assert name not in names(snapshot(0, heads(kind(length, 0.49))))


@pytest.mark.parametrize("length", LENGTHS)
def test_one_hot_rows_are_a_collapse_unless_they_have_a_name(length: int) -> None:
    rng = np.random.default_rng(0)
    assert "collapsed" not in names(snapshot(0, heads(first(length, 0.999))))
    assert "collapsed" not in names(snapshot(0, heads(previous(length, 0.999))))
    key = rng.integers(0, np.arange(1, length + 1))
    for weight, holds in ((0.96, True), (0.90, False)):
        once = snapshot(0, heads(anywhere(length, weight, np.random.default_rng(key[-1]))))
        sharp = float(rescale_weight(once["top_1"].values, once["even_weight"].values).item())
        assert sharp == pytest.approx(weight, abs=0.01)
        assert ("collapsed" in names(once)) == holds
    assert "collapsed" not in names(snapshot(0, heads(anywhere(length, 0.99, rng)), prefix=0.9))


def test_a_place_has_one_name_from_when_it_is_that_place() -> None:
    """A head that turns to another key begins anew; a sink or one token is not also a token or a position."""
    rows = np.arange(24)
    turned = series([heads(on_key(np.maximum(rows - back, 0), 0.9)) for back in (3, 3, 5, 5)])
    assert [v.since for v in judge_heads(turned, ["fixed-offset"])] == [100]
    kinds = {"sink", "one-token", "one-position"}
    for position, known, unknown in ((0, "sink", "sink"), (4, "one-token", "one-position")):
        once = snapshot(0, heads(on_key(np.minimum(rows, position), 0.9)))
        assert names(once) & kinds == {unknown}
        once["token_weight"][...], once["token_id"][...] = 0.9, 17  # the same token there in all windows
        assert names(once) & kinds == {known}


def test_uniform_means_that_a_tenth_would_have_to_move() -> None:
    """Pinsker's bound on attention at the threshold, and both sides of it."""
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(64, 64))
    for scale, holds in ((0.15, True), (0.3, False)):
        weights = softmax(scale * noise)
        assert ("uniform" in names(snapshot(0, heads(weights)))) == holds
        if holds:
            moved = 0.5 * np.abs(weights - even(64)).sum(-1)[1:].mean()
            assert moved < 0.1


def test_sparse_means_the_square_root_of_the_keys() -> None:
    for keys, holds in ((4, True), (30, False)):
        weights = np.zeros((64, 64))
        for row in range(64):
            seen = min(row + 1, keys)
            weights[row, row + 1 - seen : row + 1] = 1 / seen
        assert ("sparse" in names(snapshot(0, heads(weights)))) == holds


@pytest.mark.parametrize(
    ("name", "quantity", "severity"),
    [
        ("induction-like", "prefix_matching", "pattern"),
        ("dormant", "dormant_rows", "notice"),
        ("learned-sink", "learned_sink", "notice"),
    ],
)
def test_shares_that_are_judged_as_they_are(name: str, quantity: str, severity: str) -> None:
    """From half on; one snapshot just below ends nothing; an unknown share says nothing.

    Induction heads and those on a learned sink attend to a key that has a name, so that they have not collapsed.
    """
    shares = series([heads(anywhere(24, 0.99, np.random.default_rng(0)))] * 4)
    for values, since in (
        ((0.4, 0.51, 0.51, 0.51), 50),
        ((0.6, 0.6, 0.46, 0.6), 0),
        ((0.6, 0.6, 0.44, 0.6), 150),
        ((0.6, 0.6, 0.6, 0.49), 0),
        ((0.6, 0.6, 0.49, 0.49), None),
        ((0.6, 0.6, 0.6, np.nan), None),
    ):
        shares[quantity][:, 0, 0] = np.array(values)
        verdicts = {v.name: v for v in judge_heads(shares)}
        assert (name in verdicts) == (since is not None), values
        assert since is None or (verdicts[name].since, verdicts[name].severity) == (since, severity), values
        assert ("collapsed" in verdicts) == (since is None or name == "dormant"), values


def logits(values: list[float] | Weights, every: int = 50) -> list[HeadVerdict]:
    """Verdicts on heads whose largest logits are `values` (step) or (step, head)."""
    heads_at = np.atleast_2d(np.asarray(values, float).T).T
    snapshots = series([heads(*[even(4)] * heads_at.shape[1])] * len(heads_at), every, logit=heads_at[:, None])
    return judge_heads(snapshots, ["exploding-logits"])


def test_exploding_logits() -> None:
    """Exploded, on the way, and all that is neither."""
    (exploded,) = logits([10.0, 300.0, 400.0])
    assert exploded.since == 50
    assert exploded.severity == "alarm"
    doubling = [2.0 * 2 ** (i / 4) for i in range(20)]  # 54 at the last
    (rising,) = logits(doubling)
    assert "it reaches 256 in 450 steps" in rising.evidence  # log2(256/53.8) = 2.25 doublings of 200 steps
    assert rising.since == 800  # the first snapshot at which it is said
    (beyond,) = logits([*doubling[:19], 300.0, 400.0])
    assert beyond.since == 800  # it was said before they were beyond
    assert beyond.evidence.startswith("its largest logit has the size 400; from 256 on, bfloat16")
    assert "it reaches 256 in 1 step" in logits([*[100.0 * 1.05**i for i in range(19)], 255.9])[0].evidence
    assert not logits(doubling[:16])  # below 32
    assert not logits([40.0] * 20)
    assert not logits([40.0 + 0.01 * i for i in range(20)])  # rising, but nowhere near
    assert not logits([*doubling[:-1], 0.99 * doubling[-2]])  # has stopped
    assert not logits([33.0, 60.0])  # two snapshots are no trend
    assert not logits([33.0, 60.0, 40.0, 60.0, 90.0])  # nor are three
    assert logits([33.0, 32.0] * 12 + [34.0 * 1.25**i for i in range(8)])  # what was before does not matter
    assert not logits(40 + np.random.default_rng(3).normal(size=(20, 500)))  # 500 heads whose logits jitter around 40


def test_frozen_is_what_measure_snaps_says() -> None:
    rng = np.random.default_rng(4)
    moving = [softmax(i * rng.normal(size=(16, 16))) for i in range(6)]
    stopped = series([heads(w) for w in [*moving, *[moving[-1]] * 6]])
    (frozen,) = [v for v in judge_heads(stopped) if v.name == "frozen"]
    assert frozen.since == int(ss.measure.snaps(stopped)["snap_step"].item()) == 250
    peak = re.search(r"around step (\d+), at ([\d.]+) per step;", str(ss.measure.snaps(stopped)["evidence"].item()))
    assert peak is not None
    assert frozen.evidence == (
        f"its attention moved by up to {peak[2]} per step (around step {peak[1]}), and since step 250 by under 0.5% of "
        "that (6 snapshots)"
    )
    assert "frozen" not in names(series([heads(w) for w in moving]))


def test_a_pattern_that_froze_and_one_whose_learning_rate_vanished() -> None:
    """By the learning rate that is recorded: the same movements at a constant rate, at one that falls as they do, and
    at one that falls to zero."""
    rng = np.random.default_rng(4)
    start, end = (softmax(rng.normal(size=(16, 16))) for _ in range(2))
    rates = np.array([1.0, 1, 1, 1, 1, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3])
    share = np.cumsum(rates) / rates.sum()
    patterns = series([heads((1 - s) * start + s * end) for s in share])
    for told, verdict in ((np.ones(12), "frozen"), (rates, "rate-vanished"), (rates.round(1), "rate-vanished")):
        patterns["learning_rate"][:] = told
        assert names(patterns) & {"frozen", "rate-vanished"} == {verdict}
    (vanished,) = [v for v in judge_heads(patterns) if v.name == "rate-vanished"]
    assert vanished.severity == "pattern"
    patterns["learning_rate"][:] = np.nan
    assert names(patterns) & {"frozen", "rate-vanished"} == {"frozen"}


def test_the_row_of_a_group_has_the_steps_of_all_and_names_the_head_of_its_evidence() -> None:
    both = series([heads(first(12, a), first(12, b)) for a, b in ((0.1, 0.9), (0.8, 0.7))])
    (layer,) = by_kind(both)["sink"]
    assert layer.since == "0 to 50"
    assert layer.evidence.startswith("head 1: 76% of its attention")
    (alone,) = by_kind(both.isel(head=[0]))["sink"]
    assert (alone.since, alone.evidence[:3]) == ("50", "84%")


def test_the_headline_counts_heads_on_a_single_key_whatever_they_are_called() -> None:
    """A sink that takes everything is no alarm, but it is counted; one that takes most is not."""
    sharp = snapshot(0, heads(anywhere(24, 0.99, np.random.default_rng(0)), first(24, 0.99), first(24, 0.9), even(24)))
    assert headline(sharp, by_kind(sharp)) == "heads with an alarm: 1 of 4; heads on a single key: 2 of 4"
    assert headline(sharp.drop_vars("top_1"), {}) == "heads with an alarm: 0 of 4"


def test_missing_snapshots_are_left_out() -> None:
    good = series([heads(first(12, 0.8))] * 3)
    hole = join([good, missing(good, 500, "out of memory")])
    assert [str(v) for v in judge_heads(hole)] == [str(v) for v in judge_heads(good)] != []
    assert judge_heads(missing(good, 0, "out of memory")) == []


@pytest.mark.parametrize(
    ("weights", "episodes"),
    [
        ((0.1, 0.9, 0.48, 0.9), ((50, None),)),  # one snapshot just below
        ((0.1, 0.9, 0.48, 0.48, 0.9), ((50, 150), (200, None))),  # two
        ((0.1, 0.9, 0.4, 0.9), ((50, 100), (150, None))),  # one far below
        ((0.9, 0.1, 0.48, 0.9), ((0, 50), (150, None))),  # just below before it holds
        ((0.1, 0.9, 0.48), ((50, None),)),
        ((0.9, 0.9), ((0, None),)),
    ],
)
def test_one_snapshot_just_below_the_limit_ends_nothing(
    weights: tuple[float, ...], episodes: tuple[tuple[int, int | None], ...]
) -> None:
    (sink,) = [v for v in judge_heads(series([heads(first(12, w)) for w in weights])) if v.name == "sink"]
    assert sink.episodes == episodes
    assert sink.since == episodes[-1][0]


@pytest.mark.parametrize(
    ("name", "quantity", "limit", "above"),
    [
        ("exploding-logits", "largest_logit", 256.0, True),
        ("collapsed", "top_1", 0.96, True),
        ("uniform", "entropy", 2.0, True),  # with a largest of 2.02
        ("sparse", "normalized_entropy", 0.5, False),
    ],
)
def test_every_limit_forgives_one_snapshot(name: str, quantity: str, limit: float, above: bool) -> None:
    """Just below it after it held; a second one ends the episode."""
    snapshots = series([heads(anywhere(24, 0.5, np.random.default_rng(0)))] * 6)
    snapshots["even_weight"][...] = 0.2
    held, nearly = (1.01, 0.96) if above else (0.99, 1.05)
    if name == "uniform":
        held, nearly = 1.001, 0.9995
    for shares, episodes in (
        ((nearly, held, nearly, held, held, nearly), ((50, None),)),
        ((held, held, nearly, nearly, held, held), ((0, 150), (200, None))),
    ):
        snapshots[quantity][:, 0, 0] = limit * np.array(shares)
        if name == "uniform":
            snapshots["normalized_entropy"][...] = snapshots["entropy"] / 2.02
        assert [v.episodes for v in judge_heads(snapshots, [name])] == [episodes]


def test_the_most_pressing_first() -> None:
    rng = np.random.default_rng(5)
    mixed = snapshot(0, heads(previous(24, 0.9), even(24), anywhere(24, 0.99, rng)))
    severities = [v.severity for v in judge_heads(mixed)]
    assert severities == sorted(severities, key=["alarm", "notice", "pattern"].index)
    assert [v.severity for v in judge_heads(mixed, ["previous-token"])] == ["pattern"]


def test_layers_may_have_fewer_heads_than_others() -> None:
    snapshots = snapshot(0, np.array([[first(16, 0.9)] * 3] * 2))
    for name in [name for name, values in snapshots.data_vars.items() if values.dims == ("step", "layer", "head")]:
        snapshots[name][0, 1, 2] = np.nan  # the second layer has two heads
    assert [layer.where for layer in by_kind(snapshots)["sink"]] == ["layer 0, all 3 heads", "layer 1, both heads"]
    snapshots["first_token"][0, 0, 1] = 0.0  # a head that is none is still a head
    assert [layer.where for layer in by_kind(snapshots)["sink"]] == ["layer 0, heads 0, 2", "layer 1, both heads"]


def test_random_heads_raise_no_alarm() -> None:
    """4,000 heads of random logits of every size that initialization gives: no alarm at any length, and from 16 tokens
    on no name of a mechanism either; the rates are then below 0.1% and 0.2% (with 98% confidence)."""
    rng = np.random.default_rng(6)
    for length in (2, 4, 16, 64):
        for scale in (0.02, 0.1, 0.3, 1.0):
            noise = scale * rng.normal(size=(2, 1, 250, length, length))
            dataset = series([softmax(part) for part in noise], logit=float(noise.max()), prefix=1 / length)
            given = judge_heads(dataset)
            assert not [v for v in given if v.severity == "alarm"]
            assert length < 16 or {v.name for v in given} <= {"uniform"}


def test_one_key_has_no_share() -> None:
    """Where a row has one key only, all weight on it says nothing."""
    with np.errstate(all="raise"):
        assert np.isnan(rescale_weight(np.ones(2), np.ones(2))).all()


def test_verdicts_need_only_what_is_recorded_without_asking() -> None:
    watch = ss.watch(torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), probe=torch.randn(2, 6, 8))
    assert unjudged_verdicts(watch.dataset) == {}


def test_a_users_verdict() -> None:
    @HEAD_VERDICTS.register("wandering")
    @head_verdict("alarm", needs="moved")
    def wandering(head: HeadHistory):
        return head.as_long_as(head["moved"] > 0.4, f"{head.now('moved'):.0%} moved")

    rng = np.random.default_rng(7)
    try:
        hops = series([heads(anywhere(24, 0.9, rng)) for _ in range(3)])
        assert [v.evidence[-5:] for v in judge_heads(hops, ["wandering"])] == ["moved"]
        assert judge_heads(hops)[0].name == "wandering"  # the last of the list, but the most pressing
        for wrong, sentence in (
            (lambda head: True, "the verdict 'wrong' gives True: return what head.as_long_as"),
            (lambda head: head["movde"], r"'wrong' fails on layer 0, head 0 \(KeyError: 'movde'\): mend"),
        ):
            HEAD_VERDICTS.register("wrong")(head_verdict("alarm", needs="moved")(wrong))
            with pytest.raises(ss.InputError, match=sentence):
                judge_heads(hops)
            del HEAD_VERDICTS._makers["wrong"]
        with pytest.raises(ss.InputError, match="the verdict 'wandering' needs moved: record them too"):
            judge_heads(hops.drop_vars("moved"), ["wandering"])
        needing = ("frozen", "rate-vanished", "wandering")
        assert unjudged_verdicts(hops.drop_vars("moved")) == {name: ["moved"] for name in needing}
    finally:
        del HEAD_VERDICTS._makers["wandering"]
    with pytest.raises(ss.InputError, match="unknown severity 'panic'"):
        head_verdict("panic", needs="moved")(lambda head: None)  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="unknown verdict 'sunk'"):
        judge_heads(hops, ["sunk"])
    with pytest.raises(ss.InputError, match="give snapshots of a watch"):
        judge_heads(xr.Dataset({"a": ("x", [1.0])}))
