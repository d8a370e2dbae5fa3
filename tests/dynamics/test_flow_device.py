"""The GPU's flow against the CPU's: on a GPU, or by Triton's interpreter on a CPU, where few steps must do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.data.named_classes import as_source
from scansnap.dynamics.compiled.flow_engine import KernelFlow
from scansnap.dynamics.flow_engine import FlowWork, Solution
from scansnap.dynamics.options import FlowOptions

pytest.importorskip("triton", reason="Triton is for Linux only")

from scansnap.dynamics import flow_device
from scansnap.dynamics.flow_device import DeviceFlow

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLASSES = ss.synthetic(num_query=2, next_per_query=2, num_common=1, num_distinct=1)
OPTIONS = FlowOptions(
    lr_y=1.0,
    lr_z=[100.0, 20.0],
    seeds=[3, 4],
    times=(0.0, 4e-4, 1e6),
    rtol=1e-2,
    atol=1e-2,
    init="uniform",
    device=DEVICE,
    record="decoder",
)
PARTS = ("decoder", "attention_logits", "loss", "accuracy")


def solved(engine: type[KernelFlow], options: FlowOptions, most_evaluations: int = 30) -> Solution:
    """A few steps."""
    work = FlowWork.checked(as_source(CLASSES), options)
    return engine(work, work.start(options.runs)).solve(options.runs, most_evaluations, lambda done: None)


def test_it_takes_the_same_steps() -> None:
    """Two queries whose classes share a token, from a random start: to rounding, at tolerances far above it.

    A run alone is the run beside another, bit for bit, though they take other steps.
    """
    ours, theirs = solved(DeviceFlow, OPTIONS), solved(KernelFlow, OPTIONS)
    assert np.allclose(ours.reached, theirs.reached, rtol=1e-10)
    assert 4e-4 < ours.reached[0] < 0.9 * ours.reached[1] < 1e6
    for name in PARTS:
        assert np.abs(getattr(ours, name) - getattr(theirs, name))[:, :2].max() < 1e-12, name
    assert np.abs(ours.attention_logits[:, 1] - ours.attention_logits[:, 0]).max() > 1e-4
    assert np.isnan(ours.loss[:, 2]).all()  # not reached
    alone = solved(DeviceFlow, replace(OPTIONS, lr_z=20.0, seeds=4))
    for name in PARTS:
        assert np.array_equal(getattr(ours, name)[1], getattr(alone, name)[0], equal_nan=True), name


def test_it_takes_classes_one_by_one_if_they_are_large(monkeypatch) -> None:
    """One step, to rounding."""
    options = replace(OPTIONS, lr_z=20.0, seeds=4)
    monkeypatch.setattr(flow_device, "AT_ONCE", 1)
    ours, theirs = solved(DeviceFlow, options, 2), solved(KernelFlow, options, 2)
    for name in PARTS:
        assert np.abs(getattr(ours, name) - getattr(theirs, name))[:, :2].max() < 1e-12, name


def test_tokens_find_what_their_classes_add() -> None:
    targets, size = np.array([[0, 2], [2, 1], [2, 0]]), np.array([2, 2, 1], np.int32)
    assert flow_device.sources(targets, size, 3, 4).tolist() == [[0, 5, 1], [-1, -1, 4], [-1, -1, 8]]


@pytest.mark.parametrize(
    ("classes", "more", "message"),
    [
        ("syn-small", {"residual": True}, "integrates the basic layer along the true gradient"),
        ("syn-small", {"decoder_gradient": "modified"}, "integrates the basic layer along the true gradient"),
        ("near-distinct", {}, "tokens that do not depend on their position"),
        (
            ss.single_common(num_classes=20, num_distinct=10),
            {},
            "at most 128 tokens of a query .* these classes have 256",
        ),
        (ss.single_common(num_classes=2, vocab_size=4000), {"init": "uniform"}, "16,384 entries of Y .* 32,768"),
    ],
)
def test_refusals(classes, more: dict, message: str, monkeypatch, tmp_path) -> None:
    """Before anything is written."""
    monkeypatch.setattr(flow_device, "find_device", lambda name: torch.device("cpu"))
    with pytest.raises(ss.InputError, match=message):
        ss.flow(classes, lr_y=1.0, lr_z=1.0, times=[1.0], device="cuda", store=tmp_path / "flow.zarr", **more)
    assert not (tmp_path / "flow.zarr").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(ss.InputError, match="PyTorch finds no CUDA device"):
        ss.flow("syn-small", lr_y=1.0, lr_z=1.0, times=[1.0], device="cuda")
    with pytest.raises(ss.InputError, match="PyTorch finds no CUDA device"):
        ss.sweep("syn-small", lr_y=1.0, lr_z=1.0, times=[1.0], device="cuda")


@pytest.mark.gpu
def test_stiff_flows_on_a_gpu() -> None:
    """To 10^12 at ratios from 1e-12 to 1e12, within a few tolerances of the CPU's, which may take other steps."""
    rates = np.array([1e-6, 1.0, 1e6])
    lr_y, lr_z = (axis.ravel() for axis in np.meshgrid(rates, rates))
    words = {"lr_y": lr_y, "lr_z": lr_z, "times": np.geomspace(1, 1e12, 25), "record": ("attention_logits", "loss")}
    for name in ("syn-medium-3", "single-common"):
        ours, theirs = ss.flow(name, device="cuda", **words), ss.flow(name, **words)
        assert (ours["status"] == "ok").all()
        assert np.abs(ours["attention_logits"] - theirs["attention_logits"]).max() < 1e-7
        assert np.abs(ours["loss"] / theirs["loss"] - 1).max() < 1e-7
    sweep = ss.sweep(name, lr_y=rates, lr_z=rates, times=words["times"], record="loss", device="cuda")
    assert np.array_equal(sweep["loss"].sel(lr_y=1e6, lr_z=1e-6).values.ravel(), ours["loss"].values[2])
