"""Odd surroundings and hostile files: a sentence, and nothing is read that was not written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scansnap as ss
from scansnap.dynamics import train as training
from scansnap.storage.files import checksummed_json, read_checksummed_json
from scansnap.storage.folder import MANIFEST
from scansnap.text.model_file import load_model, save_model
from tests.faults.test_damaged_stores import small_model

RUN: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": 4, "seq_len": 8, "record": "loss"}


def program(words: str, **surroundings: Any) -> subprocess.CompletedProcess[str]:
    """The program's end, with both streams in pipes unless stated otherwise."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **surroundings}
    return subprocess.run([sys.executable, "-m", "scansnap", *words.split()], text=True, **streams)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return ss.save(ss.train("syn-small", **RUN, steps=1), tmp_path / "r.zarr")


def test_a_terminal_without_unicode_shows_what_it_can(store: Path) -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "20"}
    ended = program(f"check {store}", env=ascii_only)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\u2713 loss\n" in ended.stdout


def test_a_full_output_is_said(store: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = program(f"check {store}", stdout=full)
    assert (ended.returncode, ended.stderr) == (2, "scansnap: the system refuses: No space left on device.\n")


def test_closed_streams_do_no_harm(store: Path) -> None:
    ended = program(f"check {store}", stdout=None, preexec_fn=lambda: os.closerange(0, 2))
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = program("check nowhere.zarr", stderr=None, preexec_fn=lambda: os.close(2))
    assert (ended.returncode, ended.stdout) == (2, "")


def test_nobody_reads_on(store: Path) -> None:
    words = [sys.executable, "-m", "scansnap", "check", str(store)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def forged(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A file whose seal is good and whose content is not."""
    content = read_checksummed_json(file.read_bytes())
    change(content)
    file.write_bytes(checksummed_json(content))


def test_forged_models_are_refused(tmp_path: Path) -> None:
    save_model(*small_model(), tmp_path / "model")
    forged(tmp_path / "model" / MANIFEST, lambda content: content["info"].update(width="x"))
    with pytest.raises(ss.StoreError, match="is damaged"):
        load_model(tmp_path / "model")


def test_a_store_that_somebody_moves_away_is_not_begun_again_in_pieces(tmp_path: Path, monkeypatch) -> None:
    """The run ends in a sentence, and its name is free."""
    path, advance, calls = tmp_path / "r.zarr", training._Training._advance, []

    def vandal(self: Any, record: int) -> None:
        calls.append(record)
        if len(calls) == 3:
            path.rename(tmp_path / "elsewhere.zarr")
        advance(self, record)

    monkeypatch.setattr(training._Training, "_advance", vandal)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(training, "FIRST_PIECE", 1)
    with pytest.raises(
        ss.StoreError, match=r"r\.zarr is damaged: the file .* is missing|cannot write .*r\.zarr: No such file"
    ):
        ss.train("syn-small", **RUN, steps=6, store=path)
    assert not path.exists()
    whole = ss.train("syn-small", **RUN, steps=6, store=path)
    (tmp_path / "r.zarr").rename(tmp_path / "other.zarr")
    (tmp_path / "elsewhere.zarr").rename(path)
    assert ss.train("syn-small", **RUN, steps=6, store=path)["loss"].equals(whole["loss"])
