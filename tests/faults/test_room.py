"""What the disk has no room for is refused before anything is written, with the number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.corpus import count_job
from scansnap.data.named_classes import as_source
from scansnap.dynamics.yz_tasks import YZTraining, engine_for
from tests.corpus.slow_counts import corpus_of, zipf_ids
from tests.small_text import small_corpus

RATES: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 2, "batch_size": 4, "seq_len": 8}


@pytest.fixture
def room(monkeypatch) -> Any:
    """Sets how many bytes are free."""
    return lambda free: monkeypatch.setattr(
        "scansnap.storage.files.shutil.disk_usage", lambda folder: type("Usage", (), {"free": free})
    )


@pytest.mark.parametrize(
    "words",
    [
        {"seeds": range(3)},
        {"optimizer": "adam"},
        {"optimizer": "normalized_sgd"},
        {"layers": 2, "init": "uniform"},
        {"layers": 2, "init": "uniform", "optimizer": "adam"},
    ],
    ids=str,
)
def test_the_size_of_a_checkpoint_is_known_before(words: dict[str, Any]) -> None:
    """Up to a few numbers for each run, and the padding of rows."""
    work = YZTraining.checked(as_source("syn-small"), ss.TrainOptions(**RATES, **words))
    runs = work.options.runs
    engine = engine_for(work)(work, work.start(runs), runs)
    size = sum(array.nbytes for array in engine.state().values())
    assert 0.5 * work.checkpoint_bytes < size < 1.3 * work.checkpoint_bytes + 1000 * len(runs)


def test_training_needs_room_for_its_checkpoints(tmp_path, room) -> None:
    room(1000)  # the loss of three records takes 12 bytes
    with pytest.raises(ss.InputError, match=r"the result takes up to .* has .* free: record less"):
        ss.train("syn-small", **RATES, record="loss", store=tmp_path / "r.zarr")
    assert list(tmp_path.iterdir()) == []


def test_text_needs_room_for_its_checkpoints_and_its_model(tmp_path, room, monkeypatch) -> None:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text").mkdir()
    corpus = small_corpus(tmp_path / "text")
    options: dict[str, Any] = {"steps": 1, "width": 64, "feed_forward": 64, "window": 7, "batch_size": 4}
    free = 600_000  # enough for weights alone, not for Adam's moments in two checkpoints
    room(free)
    ss.train_text(corpus, **options, store=tmp_path / "sgd.zarr")
    with pytest.raises(ss.InputError, match="the result takes up to"):
        ss.train_text(corpus, **options, optimizer="adam", store=tmp_path / "adam.zarr")
    assert not list(tmp_path.glob("adam*"))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_counting_needs_room_for_its_tables(tmp_path, room) -> None:
    corpus = corpus_of(2000, train=zipf_ids(50_000, 2000))
    estimate = count_job.TRIPLE_BYTES * 50_000 * 34 * count_job.distinct_share(corpus.train, 35)(50_000)
    room(0.9 * estimate)
    with pytest.raises(ss.InputError, match=r"the counts take up to .* has .* free: count less text"):
        ss.count_corpus(corpus, output=tmp_path / "counts")
    assert list(tmp_path.iterdir()) == []
    room(1.1 * estimate)
    ss.count_corpus(corpus, output=tmp_path / "counts")
    assert 1.0 < estimate / size_of(tmp_path / "counts") < 2.0


@pytest.mark.parametrize("types", [30, 2000, 100_000])
def test_a_sample_bounds_the_share_of_distinct_events(types: int, monkeypatch) -> None:
    """Against the share among all events, of which the sample has a fifteenth."""
    monkeypatch.setattr(count_job, "SAMPLE_EVENTS", 2**16)
    ids, window = zipf_ids(90_000, types), 12
    share = count_job.distinct_share(ids, window)(len(ids))
    events = [np.stack([ids[1:-1][d - 1 :], ids[2:][d - 1 :], ids[: -1 - d]]) for d in range(1, window)]
    query, next_token, token = np.concatenate(events, axis=1).astype(np.int64)
    exact = len(np.unique((query * types + next_token) * types + token)) / len(query)
    assert 0.95 < share / exact < 2.0
