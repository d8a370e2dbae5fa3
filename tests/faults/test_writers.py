"""Several processes on one store, and processes that are killed: every store ends whole."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scansnap as ss
from tests.corpus.slow_counts import stored_tables
from tests.faults.works import Numbers, numbers, same

ROOT = Path(__file__).parents[2]


def together(folder: Path, name: str, rounds: int, processes: int = 4) -> Counter[str]:
    """What became of processes that were started together on one store, and of the store."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.writers", name, str(folder), str(rounds), str(processes)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SCANSNAP_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    seen = dict(zip(("identical", "refused", "WRONG", "whole"), map(int, done.stdout.split()), strict=True))
    assert seen["whole"] == rounds, seen
    return Counter({result: count for result, count in seen.items() if result != "whole" and count})


def test_four_processes_on_one_store(tmp_path) -> None:
    seen = together(tmp_path, "sweep", 1)
    assert seen["identical"] >= 1
    assert seen["identical"] + seen["refused"] == 4


# --- kills --------------------------------------------------------------------------------------------------------


def read_result(store: Path, output: str) -> Numbers:
    return numbers(ss.load(store))


COMMANDS: dict[str, tuple[str, Callable[[Path, str], Numbers], str]] = {
    "train": (
        "train --preset syn-medium --steps 3000 --record-every 100 --record loss,attention_logits --batch-size 8 "
        "--store {store}",
        read_result,
        "dynamics",
    ),
    "adam": (
        "train --preset syn-medium --steps 2000 --record-every 100 --record loss --optimizer adam --batch-size 8 "
        "--store {store}",
        read_result,
        "dynamics",
    ),
    "layers": (
        "train --preset syn-small --layers 2 --init uniform --lr-y 0.5 --steps 60 --record loss --batch-size 8 "
        "--store {store}",
        read_result,
        "dynamics",
    ),
    "flow": ("flow --preset syn-medium --times log:1:1e9:40 --store {store}", read_result, "dynamics"),
    "sweep": (
        "sweep --classes syn-small --lr-z 0.5,1 --lr-y 1,2 --seeds 0:20 --steps 200 --shard-size 4 --store {store}",
        read_result,
        "dynamics",
    ),
    "text": (
        "text train example --steps 60 --record-every 10 --width 12 --feed-forward 8 --window 7 --batch-size 4 "
        "--store {store}",
        read_result,
        "text",
    ),
    "counts": (
        "corpus count example --output {store}",
        lambda store, output: dict(stored_tables(ss.read_counts(store))),
        "corpus",
    ),
    "shortcuts": (
        "shortcuts example --text review --label sentiment",
        lambda store, output: {name: value for name, value in json.loads(output).items() if "seconds" not in name},
        "shortcuts",
    ),
}
"""Commands with the store that they write, what they leave, and the package that does the work."""

HURRY = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # as the program does before it imports
from tests.faults.hurry import hurry
hurry(seconds=0.02, packages=(sys.argv.pop(1),))
from scansnap.__main__ import run
run()
"""


def after_kills(folder: Path, name: str, kills: int, seed: int = 0) -> Counter[str]:
    """Kill a command at random moments, let it end, and count what came out.

    SIGKILL, SIGTERM and SIGINT take turns.  "continued" counts the kills that left unfinished work to go on with.
    """
    draw, seen = random.Random(f"{name} {seed}"), Counter[str]()
    environment = {**os.environ, "SCANSNAP_CACHE": str(folder / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    command, read, package = COMMANDS[name]

    def start(store: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", HURRY, package, *command.format(store=store).split(), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def finish(store: Path) -> Numbers:
        process = start(store)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        return read(store, output)

    finish(folder / "compiled")  # the first may have to compile
    began = time.monotonic()
    expected = finish(folder / "whole")
    seconds, number = time.monotonic() - began, 0
    while seen["kills"] < kills:
        store = folder / f"{number}"
        for _ in range(min(3, kills - seen["kills"])):
            process = start(store)
            try:
                process.wait(draw.uniform(0.2, 0.9) * seconds)
            except subprocess.TimeoutExpired:
                process.send_signal((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[seen["kills"] % 3])
                _, errors = process.communicate()
                seen["kills"] += 1
                seen["continued"] += store.exists() and any(store.iterdir())
                seen["TRACEBACK"] += "Traceback" in errors
            else:
                process.communicate()
                seconds *= 0.7  # it ended before: the machine has become faster
                break
        seen["identical" if same(finish(store), expected) else "WRONG NUMBERS"] += 1
        left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
        seen["LEFT BEHIND"] += len(left)
        number += 1
    return +seen


# --- a local Ray --------------------------------------------------------------------------------------------------

MARK = "SCANSNAP_TEST_CLUSTER"
"""An environment variable by which a test recognizes the processes of its cluster."""

PROGRAM = """
import os, signal, sys
from pathlib import Path
from scansnap.dynamics import sweep
real, mode = sweep.run_shard, sys.argv.pop(1)

def run_shard(shard):
    if mode == "hang":
        import time
        print("working", flush=True)
        Path("working").touch()
        time.sleep(600)
    if mode == "die" and shard.index == 1 and not Path("died").exists():
        Path("died").touch()
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(shard)

sweep.run_shard = run_shard
from scansnap.cli.app import main
main()
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, the same in IPv6, and ::1, as Linux writes them."""

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")


def start_sweep(folder: Path, mode: str) -> subprocess.Popen[str]:
    command = "sweep --classes syn-small --lr-z 1 --lr-y 1,2 --seeds 0:4 --steps 2 --shard-size 4 --cluster ray --json"
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode, *command.split()],
        cwd=folder,
        env={**os.environ, MARK: str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def marked(value: str) -> set[Path]:
    """The processes whose environment has the mark with this value."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={value}".encode() in variables:
            found.add(entry)
    return found


def listening(processes: set[Path]) -> list[str]:
    """The addresses on which these processes listen."""
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()]
    sockets = {f"socket:[{line[9]}]": line[1].partition(":")[0] for line in lines if line[3] == "0A"}
    handles = [handle for process in processes for handle in (process / "fd").glob("*") if handle.is_symlink()]
    return [sockets[target] for handle in handles if (target := str(handle.readlink())) in sockets]


def wait_until(condition: Callable[[], Any], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)
    return bool(condition())


@pytest.mark.slow
@needs_ray
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's list of sockets")
def test_ray_listens_on_the_loopback_only_and_ends_soon_after_its_driver(tmp_path) -> None:
    driver = start_sweep(tmp_path, "hang")
    assert wait_until((tmp_path / "working").exists, 180)
    addresses = listening(marked(str(tmp_path)))
    assert len(addresses) > 4
    assert set(addresses) <= LOOPBACK
    driver.kill()
    driver.communicate()
    assert wait_until(lambda: not marked(str(tmp_path)), 150)


@pytest.mark.slow
@needs_ray
def test_the_output_of_a_lost_worker_is_not_in_the_result(tmp_path) -> None:
    output, _ = start_sweep(tmp_path, "die").communicate(timeout=300)
    assert (tmp_path / "died").exists()
    assert json.loads(output)["runs"] == 8
    assert list((tmp_path / "results").iterdir())
