"""One small piece of work for every kind of store.

A work takes a folder, does there what is missing, and returns the numbers that come out.  Started again on a folder
that a kill, a full disk or damage has left, it must return the same numbers or refuse in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scansnap as ss
from scansnap.monitor.store import read_snapshots
from scansnap.storage.cache import cached_folder
from scansnap.storage.folder import is_new
from scansnap.text.model_file import load_model, model_folder
from tests.corpus.slow_counts import corpus_of, stored_tables, zipf_ids
from tests.small_text import SMALL, small_corpus

OPTIONS: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": 4, "seq_len": 8, "record": "loss", "progress": False}
STEPS = 4

Numbers = dict[str, Any]
Work = Callable[[Path], Numbers]


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


def train(root: Path) -> Numbers:
    return numbers(ss.train("syn-small", **OPTIONS, steps=6, store=root / "r.zarr"))


def layers(root: Path) -> Numbers:
    options = {**OPTIONS, "layers": 2, "init": "uniform", "optimizer": "adam", "lr_y": 0.1}
    return numbers(ss.train("syn-small", **options, steps=STEPS, store=root / "r.zarr"))


def sweep(root: Path) -> Numbers:
    options = {**OPTIONS, "lr_y": [1.0, 2.0], "seeds": range(3), "steps": 2, "shard_size": 2}
    return numbers(ss.sweep("syn-small", **options, store=root / "r.zarr"))


def flow(root: Path) -> Numbers:
    options = {"lr_y": 1.0, "lr_z": 1.0, "times": [1.0, 2.0], "record": "loss", "progress": False}
    return numbers(ss.flow("syn-small", **options, store=root / "r.zarr"))


def text(root: Path) -> Numbers:
    texts = root.parent / f"{root.name}-text"
    texts.mkdir(exist_ok=True)
    options = {**SMALL, "steps": 3, "record_every": 1, "store": root / "r.zarr", "progress": False}
    result = ss.train_text(small_corpus(texts), **options)
    model, _ = load_model(model_folder(root / "r.zarr"))
    return {**numbers(result), **{name: value.numpy() for name, value in model.state_dict().items()}}


def counts(root: Path) -> Numbers:
    corpus = corpus_of(9, train=zipf_ids(300, 9), valid=zipf_ids(200, 9, seed=1))
    for split in ("train", "valid"):
        counted = ss.count_corpus(corpus, output=root / "counts", window=4, split=split, add=True, progress=False)
    return {**stored_tables(counted), **numbers(counted.vocabulary)}


class OneLayer(nn.Module):
    """Attention whose logits are a fixed matrix times `scale`."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(self.scale * x, x, x)[0]


def watch(root: Path) -> Numbers:
    torch.manual_seed(0)
    path, model, probe = root / "r.zarr", OneLayer().eval(), torch.randn(1, 5, 8)
    last = 0 if is_new(path) else int(read_snapshots(path)["step"][-1])
    model.scale = 1.0 + last
    options: dict[str, Any] = {"every": 1, "record": ("normalized_entropy", "top_1"), "errors": "raise"}
    with ss.watch(model, probe=probe, store=path, **options) as watching:
        for step in range(last + 1, STEPS):
            model.scale = 1.0 + step
            watching.step(step)
        return numbers(watching.dataset)


def cache(root: Path) -> Numbers:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(root))
        folder = cached_folder("kind", "key", lambda folder: (folder / "file").write_bytes(bytes(100)))  # type: ignore[arg-type, return-value]
        return {"file": (folder / "file").read_bytes()}


WORKS: dict[str, Work] = {work.__name__: work for work in (train, layers, sweep, flow, text, counts, watch, cache)}


def outcome(work: Work, root: Path, expected: Numbers) -> str:
    """What work on a folder comes to: "identical", "refused", or something that must not be, in capitals."""
    try:
        return "identical" if same(work(root), expected) else "WRONG NUMBERS"
    except ss.ScanSnapError as error:
        return "refused" if "\n" not in str(error) else f"SEVERAL LINES {error}"
    except Exception as error:
        return f"TRACEBACK {type(error).__name__}: {error}"
