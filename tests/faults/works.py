"""The stores that are damaged, killed and written by several processes: one small piece of work for each kind.

`run` takes a folder, does there what is missing, and returns the numbers that come out.  `command` is longer work of
the same kind in a process of its own, which can be killed.  Started again on a folder that a kill, a full disk or
damage has left, both must give the same numbers or refuse in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import scansnap as ss
from scansnap.monitor.store import read_snapshots
from scansnap.storage.cache import cached_folder
from scansnap.storage.folder import is_new
from scansnap.text.model_file import load_model, model_folder
from tests.small_text import SMALL, small_corpus

OPTIONS: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": 4, "seq_len": 8, "record": "loss", "progress": False}
STEPS = 4

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """One kind of store, written here and by a command."""

    run: Callable[[Path], Numbers]
    command: str = ""
    package: str = "dynamics"  # whose checkpoints the command is to write often


def numbers(dataset: Any) -> Numbers:
    """The values of all variables of a dataset."""
    return {str(name): values.values for name, values in dataset.load().variables.items()}


def same(first: Numbers, second: Numbers) -> bool:
    """Whether two works returned the same numbers, bit by bit."""
    return first.keys() == second.keys() and all(_equal(value, second[name]) for name, value in first.items())


def _equal(first: Any, second: Any) -> bool:
    if not isinstance(first, np.ndarray):
        return bool(first == second)
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def train(root: Path, **options: Any) -> Numbers:
    return numbers(ss.train("syn-small", **{**OPTIONS, "steps": STEPS, **options}, store=root / "r.zarr"))


def sweep(root: Path) -> Numbers:
    options = {**OPTIONS, "lr_y": [1.0, 2.0], "seeds": range(3), "steps": 2, "shard_size": 2}
    return numbers(ss.sweep("syn-small", **options, store=root / "r.zarr"))


def flow(root: Path) -> Numbers:
    options = {"lr_y": 1.0, "lr_z": 1.0, "times": [1.0, 2.0], "record": "loss", "progress": False}
    return numbers(ss.flow("syn-small", **options, store=root / "r.zarr"))


def text(root: Path) -> Numbers:
    texts = root.parent / "corpus"  # a run on a corpus of another name is another run
    options = {**SMALL, "steps": 3, "record_every": 1, "store": root / "r.zarr", "progress": False}
    if not texts.exists():
        texts.mkdir()
        small_corpus(texts)
    result = ss.train_text(ss.read_corpus(texts), **options)
    model, _ = load_model(model_folder(root / "r.zarr"))
    return {**numbers(result), **{name: value.numpy() for name, value in model.state_dict().items()}}


def watch(root: Path) -> Numbers:
    """Snapshots of an encoder whose weights are `1 + step` times those at the start."""
    torch.manual_seed(0)
    path, model, probe = root / "r.zarr", nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), torch.randn(1, 5, 8)
    start = {name: value.clone() for name, value in model.eval().state_dict().items()}

    def move(step: int) -> None:
        model.load_state_dict({name: (1.0 + step) * value for name, value in start.items()})

    last = 0 if is_new(path) else int(read_snapshots(path)["step"][-1])
    move(last)
    options: dict[str, Any] = {"every": 1, "record": ("normalized_entropy", "top_1"), "errors": "raise"}
    with ss.watch(model, probe=probe, store=path, **options) as watching:
        for step in range(last + 1, STEPS):
            move(step)
            watching.step(step)
        return numbers(watching.dataset)


def cache(root: Path) -> Numbers:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(root))
        folder = cached_folder("kind", "key", lambda folder: (folder / "file").write_bytes(bytes(100)))  # type: ignore[arg-type, return-value]
        return {"file": (folder / "file").read_bytes()}


MEDIUM = "train --preset syn-medium --record-every 100 --batch-size 8 --store {store} --record loss"

WORKS: dict[str, Work] = {
    "train": Work(train, f"{MEDIUM},attention_logits --steps 3000"),
    "adam": Work(lambda root: train(root, optimizer="adam"), f"{MEDIUM} --optimizer adam --steps 2000"),
    "layers": Work(
        lambda root: train(root, layers=2, init="uniform", optimizer="adam", lr_y=0.1),
        "train --preset syn-small --layers 2 --init uniform --lr-y 0.5 --steps 60 --record loss --batch-size 8 "
        "--store {store}",
    ),
    "flow": Work(flow, "flow --preset syn-medium --times log:1:1e9:40 --store {store}"),
    "sweep": Work(
        sweep,
        "sweep --classes syn-small --lr-z 0.5,1 --lr-y 1,2 --seeds 0:20 --steps 200 --shard-size 4 --store {store}",
    ),
    "text": Work(
        text,
        "text train example --steps 800 --record-every 200 --width 12 --feed-forward 8 --window 7 --batch-size 4 "
        "--store {store}",
        "text",
    ),
    "watch": Work(watch),
    "cache": Work(cache),
}
WRITTEN = {name: work.run for name, work in WORKS.items()}
"""What is written in this process, to be damaged, cut short or written by several processes."""


def outcome(run: Callable[[Path], Numbers], root: Path, expected: Numbers, because: str = "") -> str:
    """What work on a folder comes to: "identical", "refused", or something that must not be, in capitals."""
    try:
        return "identical" if same(run(root), expected) else "WRONG NUMBERS"
    except ss.ScanSnapError as error:
        is_sentence = "\n" not in str(error) and because in str(error)
        return "refused" if is_sentence else f"ANOTHER SENTENCE {error}"
    except Exception as error:
        return f"TRACEBACK {type(error).__name__}: {error}"
