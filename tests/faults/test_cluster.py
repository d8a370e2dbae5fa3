"""A local Ray: nothing listens beyond the loopback, nothing outlives a killed driver, and output is for results."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys
from pathlib import Path
from scansnap.runtime import local_ray, shards
real, mode = shards.run_shard, sys.argv.pop(1)

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

shards.run_shard = run_shard
from scansnap.cli.app import main
main()
"""
WORDS = ["sweep", "--classes", "syn-small", "--lr-z", "1", "--lr-y", "1,2", "--seeds", "0:4", "--steps", "2"]
WORDS += ["--shard-size", "4", "--cluster", "ray", "--json"]


def start(folder: Path, mode: str) -> subprocess.Popen[str]:
    pytest.importorskip("ray")
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode, *WORDS],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def of_cluster() -> dict[int, str]:
    """The processes that carry the mark of a cluster, and the mark."""
    marked = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(b"SCANSNAP_CLUSTER="):
                marked[int(entry.name)] = variable.decode()
    return marked


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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's list of sockets")
def test_nothing_listens_beyond_and_nothing_outlives_its_driver(tmp_path, capsys) -> None:
    before = set(of_cluster())
    driver = start(tmp_path, "hang")
    deadline = time.monotonic() + 180
    while not (tmp_path / "working").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    own = set(of_cluster()) - before
    addresses = listening({driver.pid, *own})
    assert len(addresses) > 4
    assert set(addresses) <= LOOPBACK
    driver.kill()
    driver.communicate()
    for _ in range(100):
        if not set(of_cluster()) & own:
            break
        time.sleep(0.1)
    left = set(of_cluster()) & own
    with capsys.disabled():
        print(f"\n{len(own)} processes of a cluster with {len(addresses)} sockets on the loopback; {len(left)} left")
    assert not left


@pytest.mark.slow
def test_a_lost_workers_words_are_not_in_the_output(tmp_path) -> None:
    driver = start(tmp_path, "die")
    output, _ = driver.communicate(timeout=300)
    assert (tmp_path / "died").exists()
    assert json.loads(output)["runs"] == 8
    assert list((tmp_path / "results").iterdir())
