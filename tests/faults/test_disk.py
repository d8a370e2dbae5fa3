"""Results that are replaced, and too little disk space: nothing is lost, and work ends in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import scansnap as ss
from scansnap.data.named_classes import as_source
from scansnap.dynamics.yz_tasks import YZTraining, engine_for
from tests.faults.power_cut import cuts, write_tree
from tests.faults.works import OPTIONS
from tests.small_text import small_corpus


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
        seen["old" if loaded.equals(old) else "new" if loaded.equals(new) else "WRONG NUMBERS"] += 1
    assert set(seen) == {"old", "new"}


# --- disk space is checked before anything is written -----------------------------------------------------------------


@pytest.fixture
def free_space(monkeypatch) -> Iterator[Callable[[float], None]]:
    """Sets how many bytes are free."""
    return lambda free: monkeypatch.setattr(
        "scansnap.storage.files.shutil.disk_usage", lambda folder: type("Usage", (), {"free": free})
    )


@pytest.mark.parametrize(
    "options",
    [
        {"seeds": range(3)},
        {"optimizer": "normalized_sgd"},
        {"layers": 2, "init": "uniform", "optimizer": "adam"},
    ],
    ids=str,
)
def test_the_size_of_a_checkpoint_is_known_before(options: dict[str, Any]) -> None:
    """Up to a few numbers for each run, and the padding of rows."""
    rates = {"lr_y": 1.0, "lr_z": 1.0, "steps": 2, "batch_size": 4, "seq_len": 8}
    work = YZTraining.checked(as_source("syn-small"), ss.TrainOptions(**rates, **options))
    runs = work.options.runs
    engine = engine_for(work)(work, work.start(runs), runs)
    size = sum(array.nbytes for array in engine.state().values())
    assert 0.5 * work.checkpoint_bytes < size < 1.3 * work.checkpoint_bytes + 1000 * len(runs)


def test_training_needs_disk_space_for_its_checkpoints(tmp_path, free_space) -> None:
    free_space(1000)  # the loss of three records takes 12 bytes
    with pytest.raises(ss.InputError, match=r"the result takes up to .* has .* free: record less"):
        ss.train("syn-small", **OPTIONS, steps=2, store=tmp_path / "r.zarr")
    (tmp_path / "text").mkdir()
    corpus = small_corpus(tmp_path / "text")
    options: dict[str, Any] = {"steps": 1, "width": 64, "feed_forward": 64, "window": 7, "batch_size": 4}
    free_space(600_000)  # enough for weights alone, not for Adam's moments in two checkpoints
    ss.train_text(corpus, **options, store=tmp_path / "sgd.zarr")
    with pytest.raises(ss.InputError, match="the result takes up to"):
        ss.train_text(corpus, **options, optimizer="adam", store=tmp_path / "adam.zarr")
    assert not list(tmp_path.glob("adam*"))
    assert not (tmp_path / "r.zarr").exists()
