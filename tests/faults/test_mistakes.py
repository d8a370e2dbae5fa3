"""Mistakes that were once put into the source on purpose, and that no other test noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

import scansnap as ss
from scansnap.data.named_classes import as_source
from scansnap.dynamics import sweep as sweeping
from scansnap.dynamics.grid import cells, make_grid
from scansnap.dynamics.yz_tasks import YZTraining, engine_for
from scansnap.monitor.compare import compare_runs
from scansnap.monitor.verdict_rules import EXPLODED_LOGIT
from scansnap.monitor.verdicts import count_verdicts
from tests.faults.hurry import hurry
from tests.faults.works import OPTIONS
from tests.monitor.given_attention import even, first, join, series, snapshot


def test_a_sweep_continues_with_another_shard_size(tmp_path, monkeypatch) -> None:
    """A shard of which only some runs are done is run again."""
    hurry(monkeypatch.setattr)
    options: dict[str, Any] = {**OPTIONS, "lr_y": [1.0, 2.0, 3.0], "seeds": range(4), "steps": 2}
    expected, run_shard, shards = ss.sweep("syn-small", **options), sweeping.run_shard, list[Any]()

    def stops(shard: Any) -> Any:
        shards.append(shard)
        if len(shards) == 3:
            raise KeyboardInterrupt
        return run_shard(shard)

    monkeypatch.setattr(sweeping, "run_shard", stops)
    with pytest.raises(KeyboardInterrupt):
        ss.sweep("syn-small", **options, shard_size=1, store=tmp_path / "s.zarr")
    assert ss.sweep("syn-small", **options, shard_size=4, store=tmp_path / "s.zarr").load().equals(expected)


def test_the_ratio_to_a_rate_of_zero_is_infinite() -> None:
    grid = make_grid("syn-small", lr_y=[1.0, 2.0], lr_z=[0.0, 1.0], steps=2)
    _, ratios = grid.coordinates()["lr_y_over_lr_z"]
    assert ratios.tolist() == [[np.inf, np.inf], [1.0, 2.0]]


def test_a_cell_is_the_mean_of_the_runs_that_finished() -> None:
    result = ss.sweep("syn-small", **OPTIONS, steps=2, seeds=range(3))
    expected = result["loss"].isel(step=-1, seed=[0, 2]).mean().item()
    result["loss"][..., 1, :], result["status"][..., 1] = np.nan, "diverged"
    (cell,) = cells(result)
    assert (cell["runs"], cell["ok"]) == (3, 2)
    assert cell["loss"] == pytest.approx(expected)


def test_settings_of_fewer_classes_are_recorded_too() -> None:
    settings = {"one": ss.syn_medium(num_query=1), "two": ss.syn_medium(num_query=2)}
    result = ss.sweep(settings, **{**OPTIONS, "record": "entropy"}, steps=1)
    known = result["entropy"].isel(step=-1).notnull().squeeze().transpose("classes", "class")
    assert known.values.tolist() == [[True, True, False, False], [True] * 4]


def test_an_input_error_in_a_shard_is_not_tried_again(monkeypatch) -> None:
    calls = list[Any]()

    def wrong(shard: Any) -> Any:
        calls.append(shard)
        raise ss.InputError("no.")

    monkeypatch.setattr(sweeping, "run_shard", wrong)
    with pytest.raises(ss.InputError, match=r"^no\.$"):
        ss.sweep("syn-small", **OPTIONS, steps=2, retries=2)
    assert len(calls) == 1


@pytest.mark.parametrize("more", [{}, {"init": "uniform"}, {"optimizer": "adam"}, {"record": "decoder"}], ids=str)
def test_a_shard_allows_for_the_memory_of_its_runs(more: dict[str, Any]) -> None:
    """At least that of the engine's state and of the records; a vocabulary of 20,000 makes both large."""
    classes = ss.single_common(vocab_size=20_000)
    options: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 3, "batch_size": 4, "seq_len": 8, "record": "loss"}
    grid = make_grid(classes, **{**options, **more}, record_every=1)
    work = YZTraining.checked(as_source(classes), ss.TrainOptions(**{**options, **more}))
    runs = work.options.runs
    state = engine_for(work)(work, work.start(runs), runs).state()
    records = ss.train(classes, **{**options, **more}).nbytes if "record" in more else 0
    needed = sum(array.nbytes for array in state.values()) + records
    assert grid.groups[0].bytes_per_run >= needed
    grid = make_grid(classes, **{**options, **more}, record_every=1, seeds=range(8))
    assert len(grid.shards(2.5 * grid.groups[0].bytes_per_run)) == 4


GENERATOR = torch.Generator().manual_seed(0)
QUERY, KEY = (torch.randn((1, 1, 6, 4), generator=GENERATOR) for _ in range(2))


def watch_products(query: Tensor, key: Tensor, *mask: Tensor, record: Any, **options: Any) -> ss.Watch:
    """A watch of a model that announces attention between these queries and keys, and shows nothing else of it."""
    model = nn.Linear(6, 6)
    with pytest.warns(UserWarning, match="no attention was captured in Linear"):
        watch = ss.watch(model, probe=torch.zeros(1, 6), every=1, record=record)
    watch.attention(model, queries_and_keys=lambda module, x: (query, key, *mask), **options)
    return watch


def mean_entropy(logits: Tensor) -> Tensor:
    """The mean entropy over rows of attention."""
    return torch.special.entr(logits.double().softmax(-1)).sum(-1).mean()


def test_announced_causal_attention_has_its_mask_too() -> None:
    """Against softmax over the keys that both allow."""
    seen = torch.ones((6, 6), dtype=torch.bool)
    seen[:, 1] = False
    watch = watch_products(QUERY, KEY, seen, record=("entropy", "largest_logit"), is_causal=True)
    allowed = seen & torch.ones(6, 6).tril().bool()
    logits = (QUERY @ KEY.mT / 2)[0, 0].masked_fill(~allowed, -torch.inf)
    entropy = mean_entropy(logits[2:])  # a row of one key has no choice
    np.testing.assert_allclose(watch.dataset["entropy"].values.squeeze(), entropy, rtol=1e-5)


def test_logits_that_are_all_very_negative_have_exploded() -> None:
    """The measure is the size of a row's largest logit, by which bfloat16 rounds the weights, whatever its sign."""
    positive = 20 * (KEY.abs() + 1)
    watch = watch_products(-positive, positive, record=("largest_logit", "entropy"))
    logits = -positive @ positive.mT / 2
    expected = logits.amax(-1).abs().max()
    np.testing.assert_allclose(watch.dataset["largest_logit"].values.squeeze(), expected, rtol=1e-5)
    assert [verdict.name for verdict in watch.verdicts] == ["exploding-logits"]
    for sign in (-1, 1):  # a factor of up to e before weights are normalized, at sizes from 256 on
        near = sign * 300 + torch.randn(2000, 2, generator=GENERATOR).double()
        factors = near.softmax(-1) / near.bfloat16().double().softmax(-1)
        assert 0.9 < factors.log().abs().max() < 2.0


def test_a_head_with_one_row_that_is_not_finite_has_no_numbers() -> None:
    query = QUERY.repeat(1, 2, 1, 1)
    query[0, 0, 3] = torch.nan
    with pytest.warns(UserWarning, match="the attention logits of Linear are not finite"):
        watch = watch_products(query, KEY.repeat(1, 2, 1, 1), record=("entropy",))
    assert np.isfinite(watch.dataset["entropy"].values.squeeze()).tolist() == [False, True]


def test_the_mean_of_a_negative_quantity_is_negative() -> None:
    @ss.head_quantity(long_name="minus the entropy")
    def minus_entropy(rows: ss.Rows) -> Tensor:
        return -rows.entropy

    watch = watch_products(QUERY, KEY, record=("entropy", minus_entropy))
    expected = -mean_entropy(QUERY @ KEY.mT / 2)
    np.testing.assert_allclose(watch.dataset["minus_entropy"].values.squeeze(), expected, rtol=1e-5)


@pytest.mark.parametrize(("lengths", "explodes"), [(0.9, True), (1.1, False)])
def test_logits_explode_if_they_reach_the_limit_within_the_length_of_the_run(lengths: float, explodes: bool) -> None:
    steps, last = np.arange(21) * 50, 40.0
    logits = last * (EXPLODED_LOGIT / last) ** ((steps - steps[-1]) / (lengths * steps[-1]))
    snapshots = [
        snapshot(int(step), even(4)[None, None], logit=logit) for step, logit in zip(steps, logits, strict=True)
    ]
    verdicts = ss.judge_heads(xr.concat(snapshots, "step", data_vars="minimal"), ["exploding-logits"])
    assert bool(verdicts) == explodes


def test_a_quantity_that_is_missing_at_the_last_snapshot_is_not_judged() -> None:
    snapshots = series([np.stack([first(8, 0.9)] * 2)[None]] * 3)
    snapshots["first_token"][-1, 0, 0] = np.nan
    assert [verdict.head for verdict in ss.judge_heads(snapshots, ["sink"])] == [1]
    snapshots["first_token"][-1, 0, 1] = np.nan
    assert "sink" not in count_verdicts(snapshots)


def test_a_step_beyond_64_bits_is_refused_and_the_watch_goes_on() -> None:
    watch = watch_products(QUERY, KEY, record=("entropy",))
    with pytest.raises(ss.InputError, match=r"step is 9223372036854775808: give a whole number below 2\^63"):
        watch.step(2**63)
    watch.step(2**63 - 1)
    assert watch.dataset["step"].values[-1] == 2**63 - 1


def test_a_move_belongs_to_the_learning_rate_at_its_end() -> None:
    """There is none at the first snapshot, and attention moves right after it."""
    snapshots = series([weights[None, None] for weights in (even(8), *[first(8, 0.9)] * 11)])
    snapshots["learning_rate"][:] = [np.nan, *[1.0] * 11]
    assert {verdict.name for verdict in ss.judge_heads(snapshots)} & {"frozen", "rate-vanished"} == {"frozen"}


def test_runs_at_other_rates_agree_at_equal_sums_of_the_rate() -> None:
    def run(steps: list[int], rates: list[float]) -> xr.Dataset:
        shown = [first(8, weight)[None, None] for weight in (0.0, 0.4, 0.8)]
        snapshots = join([snapshot(step, weights) for step, weights in zip(steps, shown, strict=True)])
        snapshots["learning_rate"][:] = rates
        return snapshots

    slow, fast = run([0, 10, 20], [1.0, 1.0, 1.0]), run([0, 5, 10], [9.0, 2.0, 2.0])
    assert compare_runs(slow, fast, by_rate=True)[1] == []
    assert compare_runs(slow, fast)[1] != []
