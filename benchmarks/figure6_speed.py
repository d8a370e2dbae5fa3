"""The 640 runs of Figure 6 against a plain autograd loop, paired in one process.

    python benchmarks/figure6_speed.py [--repeats 5]

For each number of query tokens they are timed in turn, `repeats` times: one run of the plain loop, then all 160 runs of
`train` as published, ten seeds at sixteen pairs of rates, then 160 runs with a seed each.  (Runs that share a seed
share its batches, which are drawn once.)  Times are processor time, with one thread each, which other programs disturb
least.  Printed are medians per run and the medians of the paired ratios, with the range of the first.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when the libraries are loaded

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import xarray as xr

import scansnap as ss
from plain_loop import train_plainly
from scansnap.dynamics.published import SYN_MEDIUM

QUERIES = (1, 3, 5, 10)
CELLS = [(z, z * ratio, seed) for z in (0.5, 1.0, 2.0, 3.0) for ratio in (1.0, 2.0, 5.0, 10.0) for seed in range(10)]
LR_Z, LR_Y, SEEDS = zip(*CELLS, strict=True)
PUBLISHED = replace(SYN_MEDIUM, lr_z=LR_Z, lr_y=LR_Y, seeds=SEEDS, record_every=None, record=("loss", "entropy"))
"""The 160 combinations of rates and seeds of one panel."""


def train_panel(num_query: int, options: ss.TrainOptions = PUBLISHED) -> xr.Dataset:
    """All runs of one panel."""
    return ss.train(ss.syn_medium(num_query=num_query), **vars(options))


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    first = seconds(lambda: train_panel(1, replace(PUBLISHED, steps=1)))
    print(f"first call, compiling or reading the compiled code: {first:.1f} s")
    print(
        f"{'queries':>7} {'plain loop':>12} {'scansnap':>12} {'ratio':>7} {'range':>13} "
        f"{'a seed each':>12} {'ratio':>7}"
    )
    for q in QUERIES:
        classes = ss.syn_medium(num_query=q)
        train_panel(q, replace(PUBLISHED, steps=1))
        train_plainly(classes, lr_y=1, lr_z=1, steps=2, batch_size=128, seq_len=128, momentum=0.9, seed=0)
        pairs = []
        for i in range(repeats):
            plain = seconds(
                partial(
                    train_plainly, classes, lr_y=1, lr_z=1, steps=100, batch_size=128, seq_len=128, momentum=0.9, seed=i
                )
            )
            shared = seconds(partial(train_panel, q)) / len(CELLS)
            apart = seconds(partial(train_panel, q, replace(PUBLISHED, seeds=range(len(CELLS))))) / len(CELLS)
            pairs.append((plain, shared, apart))
        ratios = sorted(p[0] / p[1] for p in pairs)
        plain, ours, apart = (statistics.median(p[k] for p in pairs) for k in (0, 1, 2))
        print(
            f"{q:7d} {plain:10.3f} s {1e3 * ours:9.2f} ms {statistics.median(ratios):7.0f} "
            f"{ratios[0]:6.0f}-{ratios[-1]:<6.0f} {1e3 * apart:9.2f} ms "
            f"{statistics.median(p[0] / p[2] for p in pairs):7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
