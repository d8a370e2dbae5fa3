"""Sweeps of growing size, streamed to disk: seconds per run and peak memory.

    python benchmarks/sweep.py [--most 100000]

Each size runs in a process of its own, so that its peak memory can be read: Syn-Small, 20 steps of batch 16, every run
with a seed of its own, three variables recorded at the start and at the end.  If cost per run or memory grew with the
number of runs it would show.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile

PROGRAM = """
import json, resource, sys, time
import scansnap as ss

runs, folder = int(sys.argv[1]), sys.argv[2]
options = dict(lr_z=1.0, lr_y=1.0, steps=20, batch_size=16, seq_len=32, progress=False)
ss.sweep(ss.syn_small(), **options, seeds=range(16), store=f"{folder}/warm.zarr")
began = time.perf_counter()
ss.sweep(ss.syn_small(), **options, seeds=range(runs), store=f"{folder}/{runs}.zarr")
spent = time.perf_counter() - began
print(json.dumps([spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=100_000)
    most = parser.parse_args().most
    print(f"{'runs':>9} {'seconds':>9} {'µs per run':>11} {'peak memory':>12}")
    size = 1000
    while size <= most:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", PROGRAM, str(size), folder], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            seconds, memory = json.loads(done.stdout)
        print(f"{size:9,d} {seconds:9.2f} {1e6 * seconds / size:11.0f} {memory:8.0f} MiB", flush=True)
        size *= 10


if __name__ == "__main__":
    main()
