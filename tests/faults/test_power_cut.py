"""After a power cut at any moment a store is as it was at its last checkpoint, and the same command goes on from there.

The stores here are small and checkpoints frequent, so that every moment is tried; what may be on the disk at each is
what `power_cut.py` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.dynamics import sweep as sweeping
from scansnap.dynamics import train as training
from scansnap.monitor.store import read_snapshots
from scansnap.storage.folder import is_new
from scansnap.text.model_file import load_model, model_folder
from tests.corpus.slow_counts import corpus_of, stored_tables, zipf_ids
from tests.faults.power_cut import cuts, write_tree
from tests.monitor.test_store import looks, write
from tests.small_text import SMALL, small_corpus

OPTIONS: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": 4, "seq_len": 8, "record": "loss"}

Numbers = dict[str, Any]
Work = Callable[[Path], Numbers]


def numbers(dataset: Any) -> Numbers:
    return {str(name): values.values for name, values in dataset.load().variables.items()}


def train(root: Path) -> Numbers:
    return numbers(ss.train("syn-small", **OPTIONS, steps=6, store=root / "r.zarr"))


def sweep(root: Path) -> Numbers:
    options = {**OPTIONS, "lr_y": [1.0, 2.0], "seeds": range(3), "steps": 2, "shard_size": 2}
    return numbers(ss.sweep("syn-small", **options, store=root / "r.zarr"))


def flow(root: Path) -> Numbers:
    return numbers(ss.flow("syn-small", lr_y=1.0, lr_z=1.0, times=[1.0, 2.0], record="loss", store=root / "r.zarr"))


def text(root: Path) -> Numbers:
    result = ss.train_text(small_corpus(root.parent / "text"), **SMALL, steps=3, record_every=1, store=root / "r.zarr")
    model, _ = load_model(model_folder(root / "r.zarr"))
    return {**numbers(result), **{name: value.numpy() for name, value in model.state_dict().items()}}


def counts(root: Path) -> Numbers:
    corpus = corpus_of(9, train=zipf_ids(300, 9), valid=zipf_ids(200, 9, seed=1))
    for split in ("train", "valid"):
        counted = ss.count_corpus(corpus, output=root / "counts", window=4, split=split, add=True)
    return {**stored_tables(counted), **numbers(counted.vocabulary)}


def watch(root: Path) -> Numbers:
    """Four looks; those that are there are not written again."""
    path = root / "r.zarr"
    steps = [] if is_new(path) else read_snapshots(path)["step"].values.tolist()
    write(path, [look for look in looks(4) if look["step"].item() not in steps])
    return numbers(read_snapshots(path))


WORKS: dict[str, Work] = {work.__name__: work for work in (train, sweep, flow, text, counts, watch)}


@pytest.fixture(autouse=True)
def _many_checkpoints(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(training, "FIRST_PIECE", 2)
    monkeypatch.setattr(training, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(sweeping, "COMMIT_SECONDS", -1.0)
    monkeypatch.setattr("scansnap.text.train.CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr("scansnap.corpus.count_job.PART_EVENTS", 400)
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text").mkdir()


def same(first: Numbers, second: Numbers) -> bool:
    return first.keys() == second.keys() and all(_same(value, second[name]) for name, value in first.items())


def _same(first: Any, second: Any) -> bool:
    if not isinstance(first, np.ndarray):
        return bool(first == second)
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def go_on_everywhere(folder: Path, work: Work, draws: int, every: int = 1) -> Counter[str]:
    """Cut the power at every moment of the work, start it again on what is there, and count what came out."""
    root, copy = folder / "work", folder / "copy"
    root.mkdir()
    expected: list[Numbers] = []
    trees = cuts(root, lambda: expected.append(work(root)), draws=draws, every=every)
    seen: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)  # which takes most of the time
        for tree in trees:
            write_tree(tree, copy)
            try:
                seen["the same numbers" if same(work(copy), expected[0]) else "SILENT"] += 1
            except ss.ScanSnapError as error:
                seen[f"REFUSED {error}".replace(str(copy), "")] += 1
            except Exception as error:
                seen[f"STACK TRACE {type(error).__name__} {error}"] += 1
    return seen


@pytest.mark.parametrize(("name", "every"), [("train", 100), ("sweep", 100), ("counts", 60)])
def test_work_goes_on_after_some_power_cuts(tmp_path, name: str, every: int) -> None:
    seen = go_on_everywhere(tmp_path, WORKS[name], draws=1, every=every)
    assert set(seen) == {"the same numbers"}, seen
    assert seen.total() > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_work_goes_on_after_any_power_cut(tmp_path, name: str, capsys) -> None:
    seen = go_on_everywhere(tmp_path, WORKS[name], draws=2)
    with capsys.disabled():
        print(f"\n{name}: {seen.total():,} folders after power cuts, {dict(seen)}")
    assert set(seen) == {"the same numbers"}, seen


def test_a_result_that_is_replaced_is_never_lost(tmp_path, monkeypatch) -> None:
    root, copy = tmp_path / "work", tmp_path / "copy"
    old, new = (ss.train("syn-small", **OPTIONS, steps=steps) for steps in (1, 2))
    ss.save(old, root / "r.zarr")
    trees = cuts(root, lambda: ss.save(new, root / "r.zarr", overwrite=True), draws=1, every=30)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    seen = Counter[str]()
    for tree in trees:
        write_tree(tree, copy)
        loaded = ss.load(copy / "r.zarr")
        seen["old" if loaded.equals(old) else "new" if loaded.equals(new) else "SILENT"] += 1
    assert set(seen) == {"old", "new"}
