"""Odd surroundings and hostile files: a sentence, and nothing is read that was not written."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import scansnap as ss
from scansnap.dynamics import flow as flowing
from scansnap.dynamics import train as training
from scansnap.figures.catalog import save_picture
from scansnap.runtime.snap import find_snap
from scansnap.storage.files import MARKED_BYTES
from tests.faults.inputs import run
from tests.small_text import SMALL, small_corpus

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


# --- files that are not ours ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("train --steps 1 --batch-size 2 --store mine.zarr", "mine.png"),
        ("train --steps 1 --batch-size 2 --picture mine.png", "mine.png"),
        ("flow --times 1,2 --picture mine.svg", "mine.svg"),
        ("sweep --classes syn-small --lr-y 1,2 --lr-z 1,2 --steps 1 --picture mine.pdf", "mine.pdf"),
        ("verify lemma_6", "results/lemma_6.png"),
        ("verify lemma_6 --page mine.html", "mine.html"),
        ("figure 8", "results/figure_8.pdf"),
        ("explore --output mine.html", "mine.html"),
    ],
)
def test_outputs_replace_only_what_scansnap_wrote(tmp_path: Path, command: str, name: str) -> None:
    """A file of the user is refused before the work, also where the name is a default."""
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("precious")
    ended = run(command.split())
    with pytest.raises(ss.StoreError, match=rf"{name} is a file that scansnap did not write: .* --overwrite"):
        raise ended.exception
    assert (ended.output, mine.read_text()) == ("", "precious")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert run([*command.split(), "--overwrite"]).exit_code == 0
    assert run(command.split()).exit_code == 0  # its own file is replaced without a word


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_large_pictures_are_recognized_too(tmp_path: Path, ending: str) -> None:
    """The mark of a PDF is at its end."""
    picture = Figure()
    picture.add_subplot().plot(np.random.default_rng(0).random(5000))
    for _ in range(2):
        path = save_picture(picture, tmp_path / f"large.{ending}")
    assert path.stat().st_size > 2 * MARKED_BYTES


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "full.toml").symlink_to("/dev/full")  # which gives zeros without end
    for path in tmp_path.iterdir():
        for read in (ss.read_classes, ss.read_experiment, ss.read_sweep):
            with pytest.raises(ss.InputError, match=r"cannot read .*: it is not a regular file\."):
                read(path)


def test_a_tokenizer_is_looked_up_only_under_a_name_of_the_hub(monkeypatch) -> None:
    """And without a network not at all: the host is not found at once, and nothing is tried again."""
    asked: list[str] = []

    def no_network(host: str, *rest: object) -> None:
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", no_network)
    for name in ("a b", "a/b/c", "http://x/y", "x" * 200, "../x", "-x"):
        with pytest.raises(ss.InputError, match="is no file, and no name on the hub"):
            ss.read_corpus("example", tokenizer=name)
    assert not asked
    with pytest.raises(ss.InputError, match=r"cannot load the tokenizer 'nobody/nothing' \(.*not known\)"):
        ss.read_corpus("example", tokenizer="nobody/nothing")
    assert len(asked) <= 2


# --- a result is finite, or says that it is not -----------------------------------------------------------------------


def test_no_result_with_a_number_that_is_not_finite_is_ok(monkeypatch) -> None:
    whole = ss.flow("syn-small", lr_y=1.0, lr_z=1.0, times=[5e-324, 1e-310, 1.0])
    assert (whole["status"] == "ok").all()
    assert np.isfinite(whole["loss"]).all()
    by_time = flowing._by_time

    def broken(quantity: ss.Quantity, *args: Any) -> Any:
        values = by_time(quantity, *args)
        if quantity.name == "attention":
            values[1, -1] = np.nan
        return values

    monkeypatch.setattr(flowing, "_by_time", broken)
    result = ss.flow("syn-small", lr_y=[1.0, 2.0], lr_z=1.0, times=[1.0, 2.0])
    assert result["status"].values.tolist() == ["ok", "failed"]


def test_a_quantity_that_raises_is_named_and_its_error_is_chained() -> None:
    @ss.quantity("class", needs="attention")
    def upside_down(now: ss.Snapshot) -> Any:
        return {}["key"]

    with pytest.raises(ss.InputError, match="the quantity upside_down fails with KeyError: 'key'") as caught:
        ss.train("syn-small", **{**RUN, "record": upside_down}, steps=1)
    assert isinstance(caught.value.__cause__, KeyError)


def test_arguments_of_measures_are_checked() -> None:
    for steps, moved in (([0, 1], [0, 1, 2]), ([2, 1, 0], [0, 0.1, 0.1]), (1.0, 2.0), ([[0, 1]], [[0, 1]])):
        with pytest.raises(ss.InputError, match=r"give one increasing step for each number"):
            find_snap(steps, moved)


def test_a_text_model_that_cannot_be_made_leaves_no_process_group(tmp_path: Path, monkeypatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    groups: list[str] = []
    monkeypatch.setattr("torch.distributed.init_process_group", groups.append)
    monkeypatch.setattr("torch.distributed.destroy_process_group", groups.clear)
    with pytest.raises(ss.InputError, match="batch_size is 3 for 2 processes"):
        ss.train_text(small_corpus(tmp_path), steps=1, **{**SMALL, "batch_size": 3})
    assert not groups
