"""Sweeps: every combination is one run, with the numbers of `train` or `flow` however the grid is cut."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.dynamics.grid import cells

BASIC: dict[str, Any] = {"lr_z": 0.5, "lr_y": 1.0, "steps": 4, "batch_size": 8, "seq_len": 16}
GRID = {"lr_z": [0.5, 1.0], "lr_y_over_lr_z": [1, 2, 5], "seeds": range(4), "steps": 6, "batch_size": 8, "seq_len": 16}
FLOWS = {"lr_z": [0.05, 5.0], "lr_y": [0.5, 2.0], "times": [1.0, 1e6, 1e12], "record": ("loss", "entropy")}
CLASSES = {"small": ss.syn_small(), "medium": ss.syn_medium(num_query=1)}


def test_every_combination_is_one_run_and_equals_train() -> None:
    result = ss.sweep(CLASSES, momentum=[0.0, 0.9], **GRID)
    assert result["loss"].dims == ("classes", "momentum", "lr_z", "lr_y_over_lr_z", "seed", "step")
    assert result["entropy"].dims == (*result["loss"].dims, "layer", "head", "class")
    labels = {
        "classes": ["small", "medium"],
        "momentum": [0.0, 0.9],
        "lr_z": [0.5, 1.0],
        "lr_y_over_lr_z": [1.0, 2.0, 5.0],
        "seed": [0, 1, 2, 3],
    }
    assert {name: result[name].values.tolist() for name in labels} == labels
    assert result["lr_y"].dims == ("lr_z", "lr_y_over_lr_z")
    np.testing.assert_array_equal(result["lr_y"], [[0.5, 1.0, 2.5], [1.0, 2.0, 5.0]])
    assert (result["status"] == "ok").all()
    for place in ((0, 0, 0, 0, 0), (0, 0, 1, 1, 1), (1, 0, 0, 0, 2), (1, 1, 1, 2, 3)):
        single = result.isel(dict(zip(labels, place, strict=True)))
        classes = CLASSES[str(single["classes"].values)]
        own = {name: float(single[name]) for name in ("lr_y", "lr_z", "momentum")}
        alone = ss.train(
            classes, **own, seeds=int(single["seed"]), steps=6, batch_size=8, seq_len=16, record_every=None
        )
        np.testing.assert_array_equal(single["loss"], alone["loss"][0])
        np.testing.assert_array_equal(single["entropy"].values[..., : classes.num_classes], alone["entropy"][0])


def test_every_combination_of_flows_equals_flow() -> None:
    result = ss.sweep(CLASSES, **FLOWS, normalization=["l2", "layer"], rtol=1e-6)
    assert result["loss"].dims == ("classes", "normalization", "lr_z", "lr_y", "seed", "time")
    assert result["time"].values.tolist() == FLOWS["times"]
    assert (result["status"] == "ok").all()
    for name, normalization in (("small", "l2"), ("medium", "layer")):
        own = {"lr_y": 2.0, "lr_z": 5.0, "normalization": normalization}
        alone = ss.flow(CLASSES[name], **own, times=FLOWS["times"], rtol=1e-6)
        single = result.sel(classes=name, **own, seed=0)
        np.testing.assert_array_equal(single["loss"], alone["loss"][0])
        np.testing.assert_array_equal(single["entropy"], alone["entropy"][0])
    assert cells(result)[0]["loss"] == float(result["loss"][0, 0, 0, 0, 0, -1])


@pytest.mark.parametrize(
    ("axes", "labels"),
    [
        ({"normalization": ["l2", "layer"], "residual": [False, True]}, {}),
        (
            {"num_sequences": [4, None], "optimizer": ["sgd", "normalized_sgd"]}
            | {"attention_prior": [None, {"common": -2.0}]},
            {"attention_prior": [None, '{"common": -2.0}']},
        ),
        ({"init_scale_z": [1.0, 4.0]}, {}),
        ({"seq_len": [16, float("inf")], "batch_size": [8, None]}, {}),
    ],
    ids=["layer", "data", "start", "batches"],
)
def test_options_are_axes(tmp_path, axes: dict[str, list[Any]], labels: dict[str, list[Any]]) -> None:
    fixed = (
        BASIC | ({"init": "uniform", "heads": 2} if "init_scale_z" in axes else {}) | {"record": ("loss", "attention")}
    )
    result = ss.sweep("syn-small", **fixed | axes, seeds=[0, 1], store=tmp_path / "s.zarr")
    assert set(result["status"].dims) == {*axes, "lr_z", "lr_y", "seed"}
    assert {name: result[name].values.tolist() for name in axes} == axes | labels
    last = result.isel(dict.fromkeys(axes, -1) | {"lr_z": 0, "lr_y": 0, "seed": 1})
    own = {name: values[-1] for name, values in axes.items()}
    alone = ss.train("syn-small", **fixed | own, seeds=1, record_every=None)
    for name in ("loss", "attention"):
        np.testing.assert_array_equal(last[name], alone[name][0])


def test_a_list_may_be_one_value() -> None:
    prior = np.linspace(-1, 1, 34)
    result = ss.sweep("syn-small", **BASIC, attention_prior=prior)
    assert result["loss"].dims == ("lr_z", "lr_y", "seed", "step")
    alone = ss.train("syn-small", **BASIC, attention_prior=prior, record_every=None)
    np.testing.assert_array_equal(result["loss"].values[0, 0], alone["loss"])


def test_classes_may_have_names() -> None:
    single = ss.sweep("syn-small", **BASIC)
    assert single["loss"].dims == ("lr_z", "lr_y", "seed", "step")
    assert single["step"].values.tolist() == [0, 4]  # start and end, unless told
    several = ss.sweep(["syn-small", "syn-medium-1", ss.syn_small()], **BASIC)
    assert several["classes"].values.tolist() == ["syn-small", "syn-medium-1", "2"]
    for name in ("syn-small", "2"):
        np.testing.assert_array_equal(several["loss"].sel(classes=name), single["loss"])


def test_numbers_of_heads_may_differ_where_none_is_recorded() -> None:
    with pytest.raises(ss.InputError, match="entropy cannot be recorded over different numbers of heads"):
        ss.sweep("syn-small", **BASIC, heads=[1, 2])
    assert ss.sweep("syn-small", **BASIC, heads=[1, 2], record="loss")["heads"].values.tolist() == [1, 2]


@pytest.mark.parametrize("shard_size", [1, 5, 8, 24])
def test_how_it_is_cut_does_not_matter(tmp_path, shard_size: int) -> None:
    options = {**GRID, "record": ("loss", "attention"), "record_every": 3}
    whole = ss.sweep("syn-small", **options)
    in_memory = ss.sweep("syn-small", **options, shard_size=shard_size)
    stored = ss.sweep("syn-small", **options, shard_size=shard_size, store=tmp_path / "s.zarr")
    opened = xr.open_zarr(tmp_path / "s.zarr", chunks=None)
    for other in (in_memory, stored, opened):
        for name in ("loss", "attention", "status", "lr_y", "seed"):
            np.testing.assert_array_equal(whole[name], other[name])
    assert json.loads(opened.attrs["options"])["lr_z"] == [0.5, 1.0]
    assert [path.name for path in tmp_path.iterdir()] == ["s.zarr"]


@pytest.mark.parametrize(
    ("runs", "memory", "count", "most"),
    [(1000, 10.5, 100, 10), (1000, 1e9, 20, 50), (10**5, 1e9, 98, 1024), (30, 1e9, 2, 16)],
)
def test_shards_keep_within_the_memory_allowed(monkeypatch, runs: int, memory: float, count: int, most: int) -> None:
    """`memory` in units of what one run needs."""
    shards: list[int] = []

    def stop(grid, cut, *_):
        shards.extend(map(len, cut))
        raise InterruptedError

    monkeypatch.setattr("scansnap.dynamics.sweep._run", stop)
    uniform = {**BASIC, "init": "uniform", "record": "loss"}
    with pytest.raises(ss.InputError, match=r"one run of classes needs ([\d.]+) MiB") as refusal:
        ss.sweep(ss.syn_medium(num_query=3), **uniform, memory=1e-6)
    mebibytes = float(str(refusal.value).split("needs ")[1].split()[0])
    assert mebibytes * 2**20 > 2 * 4 * 70 * 79  # Y and its velocity in float32
    with pytest.raises(InterruptedError):
        ss.sweep(ss.syn_medium(num_query=3), **uniform, seeds=range(runs), memory=min(memory * mebibytes / 1024, 1e6))
    assert (len(shards), max(shards), sum(shards)) == (count, most, runs)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"lr_y": 1.0}, "lr_y and lr_y_over_lr_z are both given"),
    ({"lr_y_over_lr_z": None}, "the decoder's rate is missing"),
    ({"seeds": [0, 0]}, "seed holds a value twice"),
    ({"lr_z": [1.0, 1.0]}, "lr_z holds a value twice"),
    ({"steps": "many"}, "steps is 'many'"),
    ({"steps": None}, "steps must be given: a sweep needs .* times of the flow"),
    ({"times": [1.0]}, "steps and times are both given"),
    ({"steps": None, "times": [1.0], "momentum": 0.9}, "momentum is given, which the flow does not have: leave it out"),
    ({"steps": None, "times": [1.0], "batch_size": 8}, "batch_size is given, which the flow does not have"),
    ({"rtol": 1e-6}, "rtol is given, which training does not have"),
    ({"rtols": 1}, "did you mean 'rtol'"),
    ({"record": 3}, "record is 3"),
    ({"record": ("los",)}, "did you mean 'loss'"),
    ({"record_every": 0}, "record_every is 0"),
    ({"lr_z": []}, "lr_z is \\[\\]"),
    ({"seeds": []}, "seeds is empty"),
    ({"momentum": []}, "momentum is empty"),
    ({"momentum": [0.9, 0.9]}, "momentum holds a value twice"),
    ({"optimizer": ["sgd", "adam"], "momentum": [0.9]}, "momentum belongs to sgd"),
    ({"optimizer": ["sgd", "sgdd"]}, "did you mean 'sgd'"),
    ({"normalization": ["l2", "L2"]}, "unknown normalization"),
    ({"init": [np.zeros((2, 2))]}, "init is list: give 'zeros' or 'uniform'"),
    ({"init": (np.zeros((34, 34)), np.zeros((34, 34)))}, "init holds arrays: a sweep starts from 'zeros' or 'uniform'"),
    ({"init_scale_z": [1.0, 2.0]}, "it scales only the start 'uniform'"),
    ({"attention_prior": ["common=-1"]}, "attention_prior is 'common=-1': give one number for each token"),
    ({"attention_prior": np.zeros(3)}, "attention_prior has 3 numbers for 34 tokens: give one number for each"),
    ({"seeds": range(10**7 + 1)}, r"seeds is range\(0, 10000001\): give up to 10,000,000 of them"),
    ({"lr_z": np.linspace(1, 2, 5001), "lr_y_over_lr_z": np.linspace(1, 2, 2000)}, "a sweep may have up to 10,000,000"),
    ({"seeds": range(10**6), "record": ("decoder",), "record_every": 1}, "GiB: record fewer variables"),
    ({"memory": -1}, "memory is -1"),
    ({"memory": 1e-9}, "memory is 1e-09: give a finite number from 1e-06"),
    ({"shard_size": 0}, "shard_size is 0"),
    ({"retries": -1}, "retries is -1"),
    ({"classes": {}}, "classes is empty"),
    ({"classes": "syn-smal"}, "unknown class setting 'syn-smal': did you mean 'syn-small'"),
    ({"classes": [3]}, r"classes is \[3\]: give "),
    ({"classes": CLASSES, "record": ("loss", "attention")}, "attention cannot be recorded over class settings of"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_contradictions_are_one_sentence(wrong: dict[str, Any], message: str) -> None:
    options = {**GRID, "classes": "syn-small", **wrong}
    if "times" in wrong and wrong.get("steps", 1) is None:
        options = {
            name: value for name, value in options.items() if name in wrong or name not in ("batch_size", "seq_len")
        }
    with pytest.raises(ss.InputError, match=message):
        ss.sweep(**options)


def test_a_flow_has_no_fresh_sequences() -> None:
    with pytest.raises(ss.InputError, match="flow has no batches"):
        ss.sweep("syn-small", **{**FLOWS, "record": "fresh_loss"})


def test_cells_leave_out_runs_that_diverged() -> None:
    result = ss.sweep("syn-small", lr_z=1.0, lr_y=[1.0, 1e39], seeds=range(2), steps=4, batch_size=8)
    good, bad = cells(result)
    assert (good["ok"], bad["ok"]) == (2, 0)
    losses = result["loss"].sel(lr_y=1.0).isel(step=-1).values
    assert good["loss_error"] == pytest.approx(losses.std(ddof=1) / math.sqrt(2), rel=1e-12)
    assert bad["loss"] is None
    assert bad["loss_error"] is None


def test_cells_of_classes_without_distinct_tokens_have_the_entropy_of_favored_ones() -> None:
    probs = [[0.6, 0.3, 0.1, 0, 0, 0, 0], [0.1, 0.3, 0.6, 0, 0, 0, 0]]
    dense = ss.SequenceClasses(probs=probs, query=[3, 4], next_token=[5, 6], vocab_size=7)
    result = ss.sweep(dense, lr_z=1.0, lr_y=1.0, seeds=range(2), steps=4, record=["entropy", "attention"])
    (cell,) = cells(result)
    assert cell["entropy"] is None
    favored = float(ss.measure.favored_entropy(result).isel(step=-1).mean())
    assert cell["favored_entropy"] == pytest.approx(favored, rel=1e-12)
    assert "favored_entropy" not in cells(result.drop_vars("attention"))[0]
