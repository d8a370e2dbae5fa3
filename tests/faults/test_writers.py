"""Several processes on one store, and processes that are killed: every store ends whole, or says that it is not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss

ROUNDS = """
import os, sys
from collections import Counter
from pathlib import Path
import numpy as np
import scansnap as ss
from scansnap.dynamics.sweep import sweep  # imported before the processes part

folder, rounds, writers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
options = dict(lr_z=1.0, lr_y=[1.0, 2.0], seeds=range(40), steps=3, batch_size=8, seq_len=16, shard_size=5,
               record=("loss",), progress=False)

def run(path):
    return sweep("syn-small", **options, store=path).load()

def child(path, start):
    os.read(start, 1)  # until all are there
    try:
        result = run(path)
        status = 0 if (result["status"] == "ok").all() and np.isfinite(result["loss"]).all() else 3
    except ss.StoreError as error:
        status = 1 if "is writing" in str(error) else 4
    except BaseException:
        status = 5
    os._exit(status)

ended, whole = Counter(), []
for number in range(rounds):
    path = folder / f"{number}.zarr"
    read, write = os.pipe()
    children = []
    for _ in range(writers):
        pid = os.fork()
        if pid == 0:
            child(path, read)
        children.append(pid)
    os.write(write, b"x" * writers)
    ended.update(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
    pid = os.fork()  # this process never computes, so that it can part again
    if pid == 0:
        os.write(write, b"x")
        child(path, read)
    whole.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    left = [p.name for p in folder.iterdir() if not p.name.endswith(".zarr")]
    assert not left, left
print("finished", ended[0], "refused", ended[1], "damaged", ended[3], "other", ended[4] + ended[5], "whole",
      whole.count(0))
"""


def rounds(folder: Path, count: int, writers: int) -> dict[str, int]:
    """What became of processes that were started together on one sweep's store, and of the store."""
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS, str(folder), str(count), str(writers)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}


def test_four_processes_on_one_sweep(tmp_path) -> None:
    ended = rounds(tmp_path, 1, 4)
    assert ended["damaged"] == ended["other"] == 0
    assert ended["whole"] == 1
    assert ended["finished"] + ended["refused"] == 4
    assert ended["finished"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("writers", [2, 4, 8])
def test_many_rounds(tmp_path, writers: int, capsys) -> None:
    count = {2: 30, 4: 95, 8: 30}[writers]
    ended = rounds(tmp_path, count, writers)
    with capsys.disabled():
        print(f"\n{count} rounds of {writers} processes: {ended}")
    assert ended["damaged"] == ended["other"] == 0
    assert ended["whole"] == count


COMMANDS = {
    "train": "train --preset syn-medium --steps 3000 --record-every 100 --record loss,attention_logits --batch-size 8",
    "adam": "train --preset syn-medium --steps 2000 --record-every 100 --record loss --optimizer adam --batch-size 8",
    "layers": "train --preset syn-small --layers 2 --init uniform --lr-y 0.5 --steps 60 --record loss --batch-size 8",
    "flow": "flow --preset syn-medium --times log:1:1e9:40",
    "sweep": "sweep --classes syn-small --lr-z 0.5,1 --lr-y 1,2 --seeds 0:20 --steps 200 --shard-size 4",
    "text": "text train example --steps 60 --record-every 10 --width 12 --feed-forward 8 --window 7 --batch-size 4",
}
HURRY = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # as the program does before it imports
import scansnap.dynamics.train as a, scansnap.dynamics.sweep as b
a.CHECKPOINT_SECONDS = a.PIECE_SECONDS = b.COMMIT_SECONDS = 0.02
if "text" in sys.argv:
    import scansnap.text.train as c
    c.CHECKPOINT_SECONDS = 0.02
from scansnap.__main__ import run
run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_again_and_again(tmp_path, name: str, capsys) -> None:
    """Up to 17 kills at random moments, by SIGKILL, SIGTERM and SIGINT; then the command ends as if nothing was."""
    draw = random.Random(name)
    environment = {**os.environ, "SCANSNAP_CACHE": str(tmp_path / "cache")}

    def start(store: str) -> subprocess.Popen[str]:
        words = [*COMMANDS[name].split(), "--store", str(tmp_path / store), "--json"]
        return subprocess.Popen(
            [sys.executable, "-c", HURRY, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    for store in ("compiled.zarr", "whole.zarr"):  # the first may have to compile
        began = time.monotonic()
        whole = start(store)
        assert whole.wait() == 0, whole.communicate()
    seconds, kills, sentences = time.monotonic() - began, 0, 0
    for number in range(17):
        process = start("r.zarr")
        try:
            process.wait(draw.uniform(0.3, 1.1) * seconds)
        except subprocess.TimeoutExpired:
            sent = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[number % 3]
            process.send_signal(sent)
            kills += 1
            _, errors = process.communicate()
            assert "Traceback" not in errors, errors
            sentences += "scansnap: stopped; " in errors
        else:
            process.communicate()
    process = start("r.zarr")
    assert process.wait() == 0, process.communicate()
    with capsys.disabled():
        print(f"\n{name}: {kills} kills, {sentences} sentences, the same numbers")
    resumed, expected = ss.load(tmp_path / "r.zarr"), ss.load(tmp_path / "whole.zarr")
    assert all(np.array_equal(resumed[name], expected[name], equal_nan=True) for name in expected.data_vars)
