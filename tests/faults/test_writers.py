"""A local Ray: it listens on this machine only, and no process is left."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
