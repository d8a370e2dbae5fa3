"""A watch with a store, sinks and verdicts: what it leaves, and how it goes on."""

from __future__ import annotations

import pytest
import torch
import xarray as xr
from torch import nn

import scansnap as ss
from tests.monitor.small_models import GPT, ids
from tests.monitor.small_models import train as train_model

PROBE = ids(2)


def train(model: nn.Module, steps: int, watch: ss.Watch | None = None) -> None:
    train_model(model, steps, each=lambda step: watch.step() if watch else None)


def test_the_store_holds_what_a_watch_without_one_remembers(tmp_path) -> None:
    """Over a restart in the middle: the same looks, and the second process counts on."""
    torch.manual_seed(0)
    model = GPT()
    whole = ss.watch(model, probe=PROBE, every=2)
    begin = ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr")
    for _ in range(3):
        train(model, 1)
        whole.step()
        begin.step()
    begin.close()
    again = ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr")
    again._step = 3  # the first watch looked at step 2 and was stopped at step 3
    for _ in range(3):
        train(model, 1)
        whole.step()
        again.step()
    stored = xr.open_zarr(tmp_path / "a.zarr", chunks=None).load()
    assert stored["step"].values.tolist() == [0, 2, 4, 6]
    everything = whole.dataset
    known = [name for name in everything.data_vars if name != "moved"]
    assert stored[known].equals(everything[known])
    assert stored["moved"].isel(step=[1, 3]).equals(everything["moved"].isel(step=[1, 3]))
    assert again.dataset.equals(stored)
    assert [str(v) for v in again.verdicts] == [str(v) for v in whole.verdicts]


def test_a_watch_goes_on_from_the_last_look(tmp_path) -> None:
    model = GPT()
    with ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr") as watch:
        train(model, 4, watch)
    with ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr") as watch:
        train(model, 4, watch)
        assert watch.dataset["step"].values.tolist() == [0, 2, 4, 6, 8]
        with pytest.warns(UserWarning, match="looks up to step 8, so the look at step 6 was not added"):
            watch.step(6)


def test_another_model_is_refused_at_once(tmp_path) -> None:
    with ss.watch(GPT(), probe=PROBE, store=tmp_path / "a.zarr"):
        pass
    with pytest.raises(ss.StoreError, match="another model"):
        ss.watch(GPT(layers=3), probe=PROBE, store=tmp_path / "a.zarr")


def test_sinks_are_told_of_every_look_and_cannot_end_the_training() -> None:
    told: dict[int, dict[str, float]] = {}
    model = GPT()
    train(
        model,
        4,
        ss.watch(model, probe=PROBE, every=2, sinks=[lambda step, numbers: told.update({step: dict(numbers)})]),
    )
    assert list(told) == [0, 2, 4]
    assert {"entropy/layer_00", "first_token/layer_01", "heads/collapsed"} <= set(told[2])

    def broken(step: int, numbers: object) -> None:
        raise ConnectionError("the dashboard is down")

    told.clear()
    with pytest.warns(UserWarning, match="a sink failed at step 0: the dashboard is down"):
        watch = ss.watch(model, probe=PROBE, every=1, sinks=[broken, lambda step, numbers: told.update({step: {}})])
    assert list(told) == [0]  # the others are told all the same
    with torch.no_grad():
        model.blocks[0].attn.c_attn.weight.fill_(torch.nan)
    watch.step()
    assert watch.dataset["status"].values.tolist() == ["ok", "missing"]
    assert list(told) == [0]  # nothing was measured
    model = GPT()
    with pytest.raises(ConnectionError):
        ss.watch(model, probe=PROBE, sinks=[broken], errors="raise")


def test_a_model_before_training_raises_no_alarm() -> None:
    """Sixty random models, 480 heads: alarms on fewer than 1% of heads, with 99% confidence."""
    for seed in range(60):
        torch.manual_seed(seed)
        watch = ss.watch(GPT(heads=4), probe=PROBE)
        assert not [verdict for verdict in watch.verdicts if verdict.severity == "alarm"]


class OwnAttention(nn.Module):
    """Written by hand: it is seen once it is announced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x.transpose(1, 2)).softmax(-1) @ x


def test_modules_announced_before_the_first_step_are_in_the_store(tmp_path) -> None:
    model = GPT()
    model.blocks.append(OwnAttention())
    with ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr") as watch:
        assert watch.dataset.sizes["layer"] == 2
        watch.attention(model.blocks[2])
        train(model, 2, watch)
        assert watch.dataset["module"].values.tolist() == ["blocks.0.attn", "blocks.1.attn", "blocks.2"]
        assert watch.dataset["step"].values.tolist() == [0, 2]
