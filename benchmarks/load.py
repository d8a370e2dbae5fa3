"""How much longer commands take beside another program that keeps every core busy.

    python benchmarks/load.py [--repeats 3]

Each command is run alone and beside one spinning process per core, in turn, `repeats` times, every time with new
results; printed are the medians and the median of the paired ratios.  A fair share of the cores makes it 2.  Threads
that spin while they wait for each other would make it ten or more.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

COMMANDS = {
    "train": "train --preset syn-medium --seeds 0,1,2,3,4,5,6,7 --steps 1000",
    "train, a user's rule": "train --preset syn-medium --steps 200 --optimizer still --from {rule}",
    "train, two layers": "train --preset syn-small --layers 2 --steps 300",
    "flow": "flow --preset syn-medium --lr-y 1,2,5,10 --lr-z 1,1,1,1",
    "sweep": "sweep --preset syn-medium --lr-z 0.5,1,2 --lr-y-over-lr-z 1,2 --seeds 0,1,2,3,4",
    "verify": "verify theorem_3 --json",
    "figure": "figure 4 --num-seeds 20 --picture {folder}/figure_4.png",
    "text train": "text train example --steps 60",
    "text train, Y and Z": "text train example --model yz --lr-z 30 --steps 400",
    "corpus count": "corpus count example --output {folder}/counts",
    "corpus predict": "corpus predict example --queries 30",
    "shortcuts": "shortcuts example --text review --label sentiment",
}
RULE = """
import scansnap as ss

@ss.OPTIMIZERS.register("still")
class Still:
    memory = ()

    def move(self, update):
        update.matrix.add_(update.gradient * update.rate)
"""
SPIN = "while True: pass"


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """One spinning process on every core."""
    spinners = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def seconds(command: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        rule = Path(folder) / "rule.py"
        rule.write_text(RULE)
        words = command.format(folder=folder, rule=rule).split()
        began = time.perf_counter()
        finished = subprocess.run(
            [sys.executable, "-m", "scansnap", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        if finished.returncode:
            raise SystemExit(f"scansnap {command}: {finished.stderr}")
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    print(f"{'command':>22} {'alone':>9} {'beside':>9} {'ratio':>6}")
    for name, command in COMMANDS.items():
        seconds(command)
        pairs = []
        for _ in range(repeats):
            alone = seconds(command)
            with busy():
                pairs.append((alone, seconds(command)))
        alone, beside = (statistics.median(pair[k] for pair in pairs) for k in range(2))
        ratio = statistics.median(loaded / free for free, loaded in pairs)
        print(f"{name:>22} {alone:7.1f} s {beside:7.1f} s {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()
