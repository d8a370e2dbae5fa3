"""Whole runs: what they record, how they resume, and what they refuse."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from scansnap.runtime.errors import InputError, StoreError
from scansnap.text import train as module
from scansnap.text.corpus import Corpus
from scansnap.text.model_file import load_model, model_folder
from scansnap.text.options import RecordSchedule, TextShape, default_records
from scansnap.text.windows import Columns
from tests.small_text import SMALL, small_corpus


def assert_same(run: xr.Dataset, other: xr.Dataset) -> None:
    for name in run.data_vars:
        np.testing.assert_array_equal(run[name].values, other[name].values, err_msg=str(name))


def test_a_run_records_what_it_says(corpus: Corpus) -> None:
    run = ss.train_text(corpus, lr_y=1.0, lr_z=0.5, steps=12, record_every=5, evaluate_every=5, layers=2, **SMALL)
    assert run["step"].values.tolist() == [0, 5, 10, 12]
    assert run["entropy"].dims == ("run", "step", "layer", "head")
    assert run["pattern"].shape == (1, 4, 2, 2, 2, 7, 7)
    assert (run["lr_y"].item(), run["lr_z"].item(), run["status"].item()) == (1.0, 0.5, "ok")
    assert np.isnan(run["loss"].values[0]).tolist() == [True, False, False, False]
    assert np.isnan(run["valid_loss"].values[0]).tolist() == [True, False, False, False]
    assert np.isnan(run["moved"].values[0, 0]).all()
    np.testing.assert_allclose(run["pattern"].sum("key_position"), 1.0, atol=1e-6)
    assert run["word"].values[0].tolist() == corpus.words(corpus.valid[:7])
    described = json.loads(run.attrs["options"])
    assert described["width"] == 12
    assert described["corpus_fingerprint"] == corpus.fingerprint
    assert run["loss"].values[0, -1] < run["loss"].values[0, 1]


def test_losses_are_means_since_the_last_record(corpus: Corpus) -> None:
    fine = ss.train_text(corpus, steps=6, record_every=1, lr_y=1.0, **SMALL)["loss"].values[0]
    coarse = ss.train_text(corpus, steps=6, record_every=3, lr_y=1.0, **SMALL)["loss"].values[0]
    np.testing.assert_allclose(coarse[1:], [fine[1:4].mean(), fine[4:7].mean()], rtol=1e-6)


def test_the_callers_random_numbers_are_left_alone(corpus: Corpus) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = ss.train_text(corpus, steps=3, record_every=1, **SMALL)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(6)
    assert_same(first, ss.train_text(corpus, steps=3, record_every=1, **SMALL))


@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({"momentum": 0.9}, 1),
        ({"optimizer": "adamw"}, 4),
        ({"optimizer": "adamw", "schedule": "linear"}, 9),
        ({"model": "yz", "lr_y": 5.0}, 4),
    ],
    ids=["momentum", "adamw", "falling rate", "yz"],
)
def test_interrupted_anywhere_a_run_continues_to_the_same_numbers(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0.0)
    shape = {"window": 7, "batch_size": 4} if "model" in changes else SMALL
    arguments = {"steps": 10, "record_every": 3, "lr_y": 0.05, **shape, **changes}
    whole = ss.train_text(corpus, **arguments)
    read, store = Columns.at, tmp_path / "run.zarr"

    def at(self: Columns, step: int, rows: slice = slice(None)) -> Any:
        if step == stop:
            raise KeyboardInterrupt
        return read(self, step, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Columns, "at", at)
        with pytest.raises(KeyboardInterrupt):
            ss.train_text(corpus, **arguments, store=store)
    with pytest.raises(StoreError, match=rf"unfinished run \({stop} of 10 steps\)"):
        ss.load(store)
    again = ss.train_text(corpus, **arguments, store=store)
    assert_same(whole, again)
    assert not list(tmp_path.glob("*.checkpoint*"))
    finished = ss.text_training(corpus, **arguments, store=store)
    assert_same(again, finished.run(False))  # read, not trained again
    stored, _ = load_model(model_folder(store), corpus.tokenizer)
    assert all(torch.equal(finished.model.state_dict()[name], value) for name, value in stored.state_dict().items())


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """That of a program that reads the same corpus from `text` as this process."""
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text").mkdir()
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_several_processes_share_the_batch(tmp_path: Path, environment: dict[str, str]) -> None:
    """Without dropout, two processes compute the same as one, to rounding; only the first writes."""
    corpus = small_corpus(tmp_path / "text")
    words = f"-m scansnap text train {tmp_path / 'text'} --steps 8 --record-every 2 --width 12 --lr-y 1"
    words += f" --feed-forward 8 --window 7 --batch-size 4 --dropout 0 --store {tmp_path / 'two.zarr'}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # as torchrun does
    processes = [
        subprocess.Popen(
            [sys.executable, *words.split()], env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    printed = [process.communicate(timeout=180)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert [text.count("result:") for text in printed] == [1, 0]
    two = ss.load(tmp_path / "two.zarr")
    single = ss.train_text(
        corpus, steps=8, record_every=2, width=12, feed_forward=8, window=7, batch_size=4, dropout=0.0, lr_y=1.0
    )
    np.testing.assert_allclose(two["loss"], single["loss"], rtol=1e-5)
    np.testing.assert_allclose(two["entropy"], single["entropy"], rtol=1e-4)
    assert json.loads(two.attrs["options"])["processes"] == 2


@pytest.mark.parametrize(
    "arguments", [{**SMALL, "lr_y": 1e12, "clip": None}, {"model": "yz", "window": 7, "batch_size": 4, "lr_y": 1e30}]
)
def test_a_diverging_run_says_so_and_keeps_its_records(corpus: Corpus, tmp_path: Path, arguments: Any) -> None:
    arguments = {**arguments, "steps": 30, "record_every": 5}
    run = ss.train_text(corpus, **arguments, store=tmp_path / "run.zarr")
    assert str(run["status"].values[0]) == "diverged"
    step = int(run["diverged_step"].values[0])
    assert 0 < step < 30
    recorded = np.isfinite(run["entropy"].values[0, :, 0, 0])
    assert recorded[0]
    assert not recorded[-1]
    assert not model_folder(tmp_path / "run.zarr").exists()
    assert str(ss.load(tmp_path / "run.zarr")["status"].values[0]) == "diverged"


def test_a_model_is_saved_if_it_is_small_or_asked_for(corpus: Corpus, tmp_path: Path, monkeypatch) -> None:
    yz = {"model": "yz", "window": 7, "batch_size": 4, "steps": 2}
    for limit, wanted, is_there in ((10, "always", True), (2**30, "never", False), (10, "auto", False)):
        monkeypatch.setattr("scansnap.text.options.LARGE_MODEL", limit)
        run = ss.train_text(corpus, **yz, save_model=wanted, store=tmp_path / wanted)
        assert model_folder(tmp_path / wanted).exists() == is_there
    assert_same(run, ss.train_text(corpus, **yz, store=tmp_path / "auto"))  # read again without its model


def test_the_trained_model_is_saved_with_its_tokenizer(corpus: Corpus, tmp_path: Path) -> None:
    run = ss.train_text(corpus, steps=4, record_every=2, **SMALL, store=tmp_path / "run.zarr")
    folder = model_folder(tmp_path / "run.zarr")
    suffixes = sorted(path.suffix for path in folder.iterdir() if not path.name.startswith("."))
    assert suffixes == [".json", ".json", ".safetensors", ".txt"]  # no pickles
    model, tokenizer = load_model(folder, corpus.tokenizer)
    assert tokenizer.vocab_size == corpus.vocab_size
    ids = torch.from_numpy(tokenizer.encode("the old dog by the wall barks").astype(np.int64))[None]
    assert model.attention(ids)[0].shape == (1, 2, 7, 7)
    first = torch.from_numpy(corpus.valid[:7].astype(np.int64))[None]
    pattern = run["pattern"].isel(run=0, step=-1, layer=0, window=0).values
    np.testing.assert_allclose(model.attention(first)[0][0].numpy(), pattern, atol=1e-6)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "text.txt").write_text("quite another text with other words .\n" * 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
        other = ss.read_corpus(tmp_path / "other")
    with pytest.raises(StoreError, match=r"the tokenizer given has \d+ tokens and is not the one that the model in"):
        load_model(folder, other.tokenizer)
    (folder / "words.txt").write_text("<eos>\n<unk>\nnothing\n")
    with pytest.raises((StoreError, InputError)):
        load_model(folder)
    with pytest.raises(StoreError, match="contains no trained text model"):
        load_model(tmp_path)


@pytest.mark.parametrize("where", ["TextTransformer", "measure"])
def test_running_out_of_memory_is_one_sentence(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def run_out(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.")

    if where == "measure":
        monkeypatch.setattr(module.AttentionMeasurement, "measure", run_out)
    else:
        monkeypatch.setattr(module, where, run_out)
    with pytest.raises(InputError, match=r"width 12, .* do not fit in the memory of this cpu: reduce one of them"):
        ss.train_text(corpus, steps=1, record_every=1, **SMALL)


def planned(steps: int = 2983, valid_tokens: int = 217_646, precision: str = "float32", **shape: int) -> Any:
    return default_records(TextShape(vocab_size=28_912, **shape), valid_tokens, 20, steps, precision)


def test_cheap_records_are_frequent() -> None:
    """The whole split 16 to 100 times, as often as the cost allows; some of its windows if that is too expensive."""
    assert planned() == (168, None)
    assert planned(steps=8949, precision="bf16-decoder") == (336, None)  # half as often
    assert planned(valid_tokens=100, steps=50) == (1, None)
    assert planned(valid_tokens=100, steps=1_000_000) == (10_000, None)
    for costly in ({"layers": 3}, {"heads": 20}, {"precision": "bf16"}, {"valid_tokens": 10**6}):
        every, windows = planned(**costly)
        assert every == 2983 // 16
        assert 64 < windows < costly.get("valid_tokens", 217_646) // 35
    assert planned(heads=200, precision="bf16") == (2983 // 16, 64)


def test_measuring_costs_what_is_allowed() -> None:
    """A layer's forward pass is a third of its update; the vocabulary is negligible."""
    deep = TextShape(vocab_size=2, layers=1000, width=2000, feed_forward=2000)
    every, windows = default_records(deep, 10**8, 20, 10**6, "float32")
    assert windows * 35 / 3 == pytest.approx(0.0125 * every * 20 * 35, rel=0.01)


def test_some_windows_are_measured_if_all_would_take_too_long(corpus: Corpus) -> None:
    whole = ss.text_training(corpus, steps=1, record_every=1, **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scansnap.text.options.FEWEST_WINDOWS", 5)
        some = ss.text_training(corpus, steps=1, **SMALL)
    entropies = [training._measurement.measure()["entropy"] for training in (whole, some)]
    assert not np.array_equal(*entropies)
    np.testing.assert_allclose(*entropies, rtol=0.1)
    assert len(some._measurement.sample) == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"window": 1000}, "too few for a batch of 4 windows of 1000"),
        ({"window": 120}, "the validation text has"),
        ({"clip": 0.0}, "clip is 0, which stops all learning"),
        ({"momentum": 0.5, "optimizer": "adam"}, "use sgd, or leave momentum out"),
        ({"heads": 5}, "width is 12 with 5 heads"),
        ({"model": "yz"}, "is an option of the model transformer, not of yz: leave it out, or train transformer"),
        ({"residual": True}, "residual is an option of the model yz, not of transformer"),
        ({"model": "xyz"}, "unknown model 'xyz': did you mean 'yz'"),
        ({"lry": 1.0}, "unknown option 'lry'"),
    ],
)
def test_impossible_options_are_refused_in_one_sentence(corpus: Corpus, changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        ss.train_text(corpus, **{"steps": 3, **SMALL, **changes})


def test_anything_but_a_corpus_is_refused() -> None:
    with pytest.raises(InputError, match=r"give what read_corpus\(...\) returns"):
        ss.train_text("wikitext-2")  # type: ignore[arg-type]


def test_an_options_object_is_given_by_name(corpus: Corpus) -> None:
    options = ss.TextOptions(steps=1, **SMALL)
    assert ss.train_text(corpus, **vars(options))["step"].values.tolist() == [0, 1]
    for function in (ss.train_text, ss.text_training):
        with pytest.raises(InputError, match=r"takes options by name: give \*\*vars\(options\)"):
            function(corpus, options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_reported(corpus: Corpus) -> None:
    with pytest.raises(InputError, match="finds no CUDA device"):
        ss.train_text(corpus, **SMALL, device="cuda")


def test_evaluation_follows_its_own_interval() -> None:
    schedule = RecordSchedule(steps=100, record_every=7, evaluate_every=30)
    steps = schedule.record_steps
    assert [int(steps[i]) for i in range(len(steps)) if schedule.evaluates(i)] == [35, 63, 91, 100]
