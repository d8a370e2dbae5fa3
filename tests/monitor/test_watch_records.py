"""A watch with a store, sinks and verdicts: what it leaves, and how it goes on."""

from __future__ import annotations

import warnings

import pytest
import torch
import xarray as xr
from torch import Tensor, nn

import scansnap as ss
from scansnap.monitor.store import read_snapshots
from tests.monitor.small_models import GPT, ids
from tests.monitor.small_models import train as train_model

PROBE = ids(2)


def train(model: nn.Module, steps: int, watch: ss.Watch | None = None) -> None:
    train_model(model, steps, each=lambda step: watch.step() if watch else None)


def test_the_store_holds_what_a_watch_without_one_remembers(tmp_path) -> None:
    """Over a restart in the middle: the same snapshots, and the second process counts on."""
    torch.manual_seed(0)
    model = GPT()
    whole = ss.watch(model, probe=PROBE, every=2)
    begin = ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr")
    for _ in range(3):
        train(model, 1)
        whole.step()
        begin.step()
    begin.close()
    with pytest.warns(UserWarning, match=r"holds steps 0 to 2, and .* give start= with its step if that is not 2\."):
        again = ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr")
    for step in (4, 5, 6):  # the first watch took a snapshot at step 2 and was stopped at step 3
        train(model, 1)
        whole.step()
        again.step(step)
    assert again.dataset["step"].values.tolist() == [0, 2, 4, 6]
    assert again.continues_from == 2
    assert repr(again).endswith("continued from step 2>")
    again.close()
    stored = xr.open_zarr(tmp_path / "a.zarr", chunks=None).load()
    everything = whole.dataset
    known = [name for name in everything.data_vars if name != "moved"]
    assert stored[known].equals(everything[known])
    assert stored["moved"].isel(step=[1, 3]).equals(everything["moved"].isel(step=[1, 3]))
    assert again.dataset.equals(stored)
    assert [str(v) for v in again.verdicts] == [str(v) for v in whole.verdicts]


def test_a_watch_resumes_from_an_earlier_checkpoint(tmp_path) -> None:
    """What the store has is kept; one warning says so."""
    model = GPT()
    with ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr") as watch:
        train(model, 4, watch)
        checkpoint = {name: value.clone() for name, value in model.state_dict().items()}
        train(model, 4, watch)
        before = watch.dataset.load()
    model.load_state_dict(checkpoint)
    with warnings.catch_warnings(record=True, action="always") as said:
        watch = ss.watch(model, probe=PROBE, every=2, store=tmp_path / "a.zarr", start=4, errors="raise")
        for step in range(5, 12):
            watch.step(step)
    assert [str(warning.message) for warning in said] == [
        f"{tmp_path / 'a.zarr'} already has snapshots up to step 8; those after step 4 are kept, and recording goes on "
        "at step 10: give another store for another run."
    ]
    assert watch.dataset["step"].values.tolist() == [0, 2, 4, 6, 8, 10]
    assert watch.dataset.isel(step=slice(5)).equals(before)


def test_a_model_that_begins_anew_is_not_the_one_in_the_store(tmp_path) -> None:
    """With the same seed and another; the trained model, also some steps later, goes on without a word."""

    def begin(seed: int) -> GPT:
        torch.manual_seed(seed)
        return GPT()

    path, model = tmp_path / "a.zarr", begin(0)
    with ss.watch(model, probe=PROBE, every=4, store=path) as watch:
        train(model, 20, watch)
        assert watch.continues_from is None
    for other in (begin(0), begin(1)):
        with (
            pytest.warns(
                UserWarning,
                match=r"a\.zarr already holds steps 0 to 20, and this model is not the one of",
            ),
            ss.watch(other, probe=PROBE, every=4, store=path),
        ):
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ss.watch(model, probe=PROBE, every=4, store=path).close()
        train(model, 3)
        ss.watch(model, probe=PROBE, every=4, store=path, start=23).close()
    broken = begin(0)
    broken.blocks[0].attn.c_attn.weight.data.fill_(torch.nan)
    with pytest.warns(UserWarning, match="the snapshot at step 24 is not whole"):
        ss.watch(broken, probe=PROBE, every=4, store=path, start=24).close()
    with pytest.warns(UserWarning, match="not the one of step 24: to begin"):
        ss.watch(model, probe=PROBE, every=4, store=path).close()


class OtherNames(nn.Module):
    """The same model, under the names of modules that hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = GPT()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.gpt(tokens)


OtherNames.__name__ = "GPT"


def test_another_model_or_probe_is_refused_at_once(tmp_path) -> None:
    """And leaves the store to others."""
    path = tmp_path / "a.zarr"
    with pytest.raises(ss.InputError, match="cannot be run on the probe") as refused:  # keeps what was refused alive
        ss.watch(GPT(), probe=(PROBE, 1, 2), store=path)
    assert refused.value
    first = ss.watch(GPT(), probe=PROBE, store=path)
    with pytest.raises(ss.StoreError, match=r"is writing .* close what this process opened"):
        ss.watch(GPT(), probe=PROBE, store=path)
    first.close()
    before = first.dataset.load()
    for other, sentence in (
        ({"model": GPT(layers=3)}, "with layer count 2 and not 3: give the same to continue it, or another store"),
        ({"model": OtherNames()}, r"with module names \['blocks.0.attn', .*and not \['gpt.blocks"),
        ({"model": type("OtherClass", (GPT,), {})()}, "with model 'GPT' and not 'OtherClass'"),
        ({"probe": PROBE[:, 1:]}, "with probe 'a tensor of 2 x 12' and not 'a tensor of 2 x 11'"),
        ({"rows": 5}, "with rows 256 and not 5"),
        ({"probe": 1 - PROBE % 2}, r"with a probe with the checksum '\w+' and not"),
        ({"tokens": lambda token: "x"}, "with token names .* and not"),
        ({"record": ("default", "top_5")}, "another record= or pattern=: it lacks top_5; give the same"),
        ({"record": ("entropy",)}, "it also has dormant_rows, effective_keys, even_weight and 15 more; give"),
    ):
        with pytest.raises(ss.StoreError, match=sentence):
            ss.watch(**{"model": GPT(), "probe": PROBE, **other}, store=path)
    assert read_snapshots(path).load().equals(before)


def test_a_sink_that_fails_does_not_end_the_training() -> None:
    told: list[int] = []

    def broken(step: int, numbers: object) -> None:
        raise ConnectionError("the dashboard is down")

    with pytest.warns(UserWarning, match="a sink failed at step 0: the dashboard is down"):
        ss.watch(GPT(), probe=PROBE, every=1, sinks=[broken, lambda step, numbers: told.append(step)])
    assert told == [0]  # the others are told all the same
    with pytest.raises(ConnectionError):
        ss.watch(GPT(), probe=PROBE, sinks=[broken], errors="raise")


def test_a_model_before_training_raises_no_alarm() -> None:
    """Fifteen random models, 480 heads: alarms on fewer than 1% of heads, with 99% confidence."""
    for seed in range(15):
        torch.manual_seed(seed)
        watch = ss.watch(GPT(heads=4, layers=8), probe=PROBE)
        assert not [verdict for verdict in watch.verdicts if verdict.severity == "alarm"]
