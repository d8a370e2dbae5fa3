"""A local Ray: nothing listens beyond the loopback or outlives a killed driver for long, and output is for results."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
MARK = "SCANSNAP_TEST_CLUSTER"
"""An environment variable by which a test knows the processes of its cluster."""

WORDS = ["sweep", "--classes", "syn-small", "--lr-z", "1", "--lr-y", "1,2", "--seeds", "0:4", "--steps", "2"]
WORDS += ["--shard-size", "4", "--cluster", "ray", "--json"]


def start(folder: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode, *WORDS],
        cwd=folder,
        env={**os.environ, MARK: str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def marked(value: str) -> set[int]:
    """The processes whose environment has the mark with this value."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={value}".encode() in variables:
            found.add(int(entry.name))
    return found


def listening(processes: set[int]) -> list[str]:
    """The addresses on which these processes listen, as the system writes them in hexadecimal."""
    sockets = {}
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                sockets[words[9]] = words[1].partition(":")[0]
    addresses = []
    for process in processes:
        for handle in Path(f"/proc/{process}/fd").glob("*"):
            try:
                target = str(handle.readlink())
            except OSError:
                continue
            if target.startswith("socket:[") and target[8:-1] in sockets:
                addresses.append(sockets[target[8:-1]])
    return addresses


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, the same in IPv6, and ::1."""


needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")


@pytest.mark.slow
@needs_ray
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's list of sockets")
def test_nothing_listens_beyond_and_nothing_outlives_its_driver_for_long(tmp_path) -> None:
    driver = start(tmp_path, "hang")
    deadline = time.monotonic() + 180
    while not (tmp_path / "working").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    addresses = listening(marked(str(tmp_path)))
    assert len(addresses) > 4
    assert set(addresses) <= LOOPBACK
    driver.kill()
    driver.communicate()
    deadline = time.monotonic() + 150
    while marked(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(1)
    assert not marked(str(tmp_path))


@pytest.mark.slow
@needs_ray
def test_a_lost_workers_words_are_not_in_the_output(tmp_path) -> None:
    driver = start(tmp_path, "die")
    output, _ = driver.communicate(timeout=300)
    assert (tmp_path / "died").exists()
    assert json.loads(output)["runs"] == 8
    assert list((tmp_path / "results").iterdir())
