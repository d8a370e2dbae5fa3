"""Ctrl-C and SIGTERM: a sentence that says what exists, and the same command goes on from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import scansnap as ss
from scansnap.claims.verify import select
from scansnap.dynamics import flow as flowing
from scansnap.dynamics import sweep as sweeping
from scansnap.dynamics import train as training
from scansnap.figures import catalog
from scansnap.figures.recipe import FigureRecipe
from scansnap.report import reproduce as page
from scansnap.storage.files import MARK
from scansnap.text.train import TextTraining
from tests.cli.test_cli import run as run_program
from tests.small_text import small_corpus

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    terminate = signal.getsignal(signal.SIGTERM)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a script starts with &
    yield
    assert signal.getsignal(signal.SIGTERM) is terminate
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, interrupt)


def run(command: str, owner: Any = None, name: str = "", after: int = 0, number: int = 0) -> tuple[int, str]:
    """The status and what was said, with a signal after this many calls of a function."""
    with pytest.MonkeyPatch.context() as patch:
        if owner is not None:
            patch.setattr(owner, name, _signaling(getattr(owner, name), after, number))
        ended = run_program(command, cwd=Path.cwd())
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr if ended.returncode else ended.stdout


def _signaling(real: Callable[..., Any], after: int, number: int) -> Callable[..., Any]:
    calls = [0]

    def call(*args: Any, **words: Any) -> Any:
        calls[0] += 1
        if calls[0] == after + 1:
            os.kill(os.getpid(), number)
        return real(*args, **words)

    return call


TRAIN = "train --steps 40 --record-every 1 --record loss --batch-size 8 --store r.zarr --json"


@SIGNALS
def test_train_says_how_far_it_came(monkeypatch, number: int) -> None:
    monkeypatch.setattr(training, "FIRST_PIECE", 1)
    status, said = run(TRAIN, training._Training, "_advance", 3, number)
    assert status == 128 + number
    assert said == "scansnap: stopped; r.zarr holds nothing yet: start the same again to go on.\n"
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    _, said = run(TRAIN, training._Training, "_advance", 5, number)
    assert said == "scansnap: stopped; r.zarr holds 5 of 40 steps: start the same again to go on from there.\n"
    assert run(TRAIN)[0] == 0


@SIGNALS
def test_a_sweep_keeps_the_runs_that_are_done(number: int) -> None:
    command = (
        "sweep --classes syn-small --lr-z 1 --lr-y 1,2,3 --seeds 0:4 --steps 3 --shard-size 4 --store s.zarr --json"
    )
    status, said = run(command, sweeping, "run_shard", 2, number)
    assert status == 128 + number
    assert said == "scansnap: stopped; s.zarr holds 8 of 12 runs: start the same again to go on from there.\n"
    status, said = run(command)
    assert json.loads(said)["runs_before"] == 8
    assert status == 0


def test_a_flow_begins_again() -> None:
    command = "flow --times 1,10 --record loss --store f.zarr --json"
    _, said = run(command, flowing, "_by_time", 0, signal.SIGTERM)
    assert said.endswith("scansnap: stopped; f.zarr holds nothing yet: start the same again to go on.\n")
    assert run(command)[0] == 0


def test_training_on_text_says_how_far_it_came(tmp_path, monkeypatch) -> None:
    """In Python the interruption stays one, with a note."""
    monkeypatch.setattr("scansnap.text.train.CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(TextTraining, "_checkpoint", _signaling(TextTraining._checkpoint, 3, signal.SIGINT))
    (tmp_path / "text").mkdir()
    corpus = small_corpus(tmp_path / "text")
    options = {"steps": 6, "width": 8, "feed_forward": 8, "window": 7, "batch_size": 4, "store": "t.zarr"}
    with pytest.raises(KeyboardInterrupt) as stop:
        ss.train_text(corpus, **options)
    assert stop.value.__notes__ == ["t.zarr holds 3 of 6 steps: start the same again to go on from there."]
    assert ss.train_text(corpus, **options)["status"].item() == "ok"


def test_reproduce_goes_on(monkeypatch) -> None:
    """The figures that are done are not made again, and the pictures are not taken for somebody else's."""
    monkeypatch.setattr(page, "select", lambda *claims: select("lemma_6"))
    blank = page.html.png(Figure(figsize=(1, 1)))
    monkeypatch.setattr(page.html, "png", lambda figure: blank)
    monkeypatch.setattr(catalog, "ENDINGS", (".png",))
    monkeypatch.setattr(catalog, "save_picture", lambda figure, target: target.write_text(MARK))
    command, made, make = "reproduce --figures 8,9 --json", [], FigureRecipe.make

    def noted(recipe: FigureRecipe, **options: object) -> Any:
        made.append(recipe.name)
        return make(recipe, **options)

    monkeypatch.setattr(FigureRecipe, "make", noted)
    status, said = run(command, catalog, "save_picture", 1, signal.SIGTERM)
    assert status == 128 + signal.SIGTERM
    assert said.endswith("stopped; reproduction holds 1 of 2 figures: start the same again to go on from there.\n")
    assert Path("reproduction/figure_8.png").exists()
    assert run(command)[0] == 0
    assert made == ["8", "9"]
    assert {path.name for path in Path("reproduction").iterdir()} == {"figure_8.png", "figure_9.png", "index.html"}


def test_a_command_that_writes_nothing_says_so(monkeypatch) -> None:
    def stopped(*names: str, **words: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("scansnap.claims.verify.read_claims", stopped)
    status, said = run("verify lemma_6 --from mine.py")
    assert status == 128 + signal.SIGTERM
    assert said == "scansnap: stopped; nothing was written.\n"


AT_THE_START = """
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "scansnap.cli.console":
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
"""
AT_THE_END = """
import threading
def send():
    threading.main_thread().join()  # which Python has done when it waits for other threads
    os.kill(os.getpid(), number)
threading.Thread(target=send).start()
"""
TWICE = """
import time
from scansnap.cli import console
from scansnap.results import store
console.GRACE = float(sys.argv.pop(1))
def send_twice(*words):
    try:
        os.kill(os.getpid(), number)
    finally:
        time.sleep(0.02)
        os.kill(os.getpid(), number)
        time.sleep(0.02)
store.check_store = send_twice
"""


def program(prepare: str, number: int, *words: str) -> subprocess.CompletedProcess[str]:
    """The program as the console starts it, with signals sent by what stands before it."""
    code = f"import os, sys\nnumber = {int(number)}\n{prepare}\nfrom scansnap.__main__ import run\nrun()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)


@SIGNALS
def test_a_signal_before_the_work_ends_in_silence(number: int) -> None:
    ended = program(AT_THE_START, number, "--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-number, "", "")


@SIGNALS
def test_a_signal_after_the_work_changes_nothing(number: int) -> None:
    ended = program(AT_THE_END, number, "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ss.__version__ in ended.stdout


@SIGNALS
def test_signals_sent_twice_are_one_and_a_later_one_ends_at_once(number: int) -> None:
    ended = program(TWICE, number, "9", "check", "x.zarr")
    assert (ended.returncode, ended.stderr) == (128 + number, "scansnap: stopped; nothing was written.\n")
    ended = program(TWICE, number, "0.01", "check", "x.zarr")
    assert (ended.returncode, ended.stderr) == (-number, "")


SWALLOWS = """
import ctypes, signal, time
from scansnap.cli.console import Terminated, stopping_on_signals

@ctypes.CFUNCTYPE(None)
def called_back():
    signal.raise_signal(signal.SIGTERM)
    time.sleep(0)

try:
    with stopping_on_signals():
        called_back()
        time.sleep(10)
except Terminated:
    print("stopped")
"""


def test_a_signal_is_not_lost_in_a_call_back() -> None:
    """As compilers make them: Python reports an exception there, and goes on as if nothing had been sent."""
    finished = subprocess.run([sys.executable, "-c", SWALLOWS], capture_output=True, text=True, check=True, timeout=60)
    assert (finished.stdout, finished.stderr) == ("stopped\n", "")
