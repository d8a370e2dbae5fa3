"""What each switch of one layer costs, beside the basic setting and a plain autograd loop, paired in one process.

    python benchmarks/switches.py [--repeats 5] [--runs 16] [--dtype float32] [--device cpu] [--only positions]

Syn-Medium with 3 queries, 100 updates, batch 128, T = 128, uniform start.  With positions, distinct tokens are near the
query (`near_distinct`, a bucket for each position), with as many tokens and positions, and again with 16 positions; the
basic setting beside them is the same classes without positions.  For each switch these are timed in turn, `repeats`
times: the basic setting, the setting with the switch, both with `runs` seeds on all cores, and one run of the plain
loop of the same architecture and precision on one core.  On a CPU times are processor time, summed over cores, which
other programs disturb least; two cores take half as long.  Printed are medians per run and medians of the paired
ratios.  The plain loop of the modified gradient and of a prior is that of the basic setting, which is cheaper.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import scansnap as ss
from plain_loop import train_plainly

SWITCHES: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9},
    "adam": {"optimizer": "adam"},
    "sign_sgd": {"optimizer": "sign_sgd"},
    "normalized_sgd": {"optimizer": "normalized_sgd"},
    "residual": {"residual": True},
    "layer normalization": {"normalization": "layer"},
    "layer, residual, adam": {"normalization": "layer", "residual": True, "optimizer": "adam"},
    "4 heads": {"heads": 4},
    "fixed set of 64": {"num_sequences": 64},
    "prior": {"attention_prior": {"common": -1.0}},
    "modified gradient": {"decoder_gradient": "modified"},
    "positions": {},
    "learned bias": {"learn_position_bias": True},
    "positions, T = 17": {},
    "learned bias, T = 17": {"learn_position_bias": True},
}
ONLY_OURS = ("attention_prior", "decoder_gradient")


def seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    work()
    return clock() - began


def without_positions(classes: ss.SequenceClasses) -> ss.SequenceClasses:
    return ss.SequenceClasses(
        probs=classes.probs,
        query=classes.query,
        next_token=classes.next_token,
        vocab_size=classes.vocab_size,
        weights=classes.weights,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", choices=tuple(SWITCHES), nargs="*", default=tuple(SWITCHES))
    asked = parser.parse_args()
    medium = ss.syn_medium(num_query=3)
    long, short = ss.near_distinct(num_positions=127, num_query=3, num_distinct=10, decay=0.97), ss.near_distinct()
    clock = time.process_time if asked.device == "cpu" else time.perf_counter
    torch.set_num_threads(1)
    print(f"{'switch':>22} {'basic':>10} {'switch':>10} {'ratio':>6} {'plain loop':>11} {'ratio':>6}")
    for name in asked.only:
        switch = SWITCHES[name]
        classes: ss.SequenceClasses = medium
        if name.startswith(("positions", "learned bias")):
            classes = short if name.endswith("17") else long
        seq_len = 1 + int(classes.sizes.sum()) if classes.num_buckets else 128
        rate = 1.0 if "optimizer" not in switch else 0.01
        common: dict[str, Any] = {"lr_y": rate, "lr_z": rate, "batch_size": 128, "seq_len": seq_len}
        ours = {
            **common,
            "init": "uniform",
            "dtype": asked.dtype,
            "device": asked.device,
            "record": ("loss",),
            "record_every": None,
            "seeds": range(asked.runs),
        }
        basic = partial(ss.train, without_positions(classes), **ours)
        switched = partial(ss.train, classes, **ours, **switch)
        plain_switch = {key: value for key, value in switch.items() if key not in ONLY_OURS}
        plain = partial(train_plainly, classes, **common, **plain_switch, seed=0, dtype=asked.dtype)
        for work in (basic, switched, plain):
            work(steps=2)
        works = [partial(work, steps=100) for work in (basic, switched, plain)]
        times = [[seconds(work, clock) for work in works] for _ in range(asked.repeats)]
        per_run = [(a / asked.runs, b / asked.runs, c) for a, b, c in times]
        a, b, c = (statistics.median(pair[k] for pair in per_run) for k in range(3))
        dearer = statistics.median(pair[1] / pair[0] for pair in per_run)
        faster = statistics.median(pair[2] / pair[1] for pair in per_run)
        print(f"{name:>22} {1e3 * a:7.2f} ms {1e3 * b:7.2f} ms {dearer:6.2f} {c:9.3f} s {faster:6.0f}", flush=True)


if __name__ == "__main__":
    main()
