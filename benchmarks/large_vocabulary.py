"""(Y, Z) at the vocabulary of OPT, M = 50,272, which the paper calls prohibitive.

    python benchmarks/large_vocabulary.py

1,000 classes of 40 tokens with one shared common set, SGD with momentum 0.9 from a zero start, sequences of 128, batch
1 and 128.  Each case runs on one core in a process of its own, whose peak memory and steps per second of processor time
are printed.  The dense way
(the plain autograd loop on M x M matrices) is run at the largest vocabulary, among multiples of 1,000, at which Y, Z,
their gradients and their momentum fit 2 GiB, and scansnap at the same.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import torch

import scansnap as ss
from plain_loop import train_plainly
from scansnap.dynamics.published import SYN_SMALL

OPT = 50_272
BUDGET = 2 * 2**30


def setting(vocab_size: int) -> ss.SequenceClasses:
    """Half as many queries as classes, 10 common and 30 distinct tokens each; as many classes as fit, up to 1,000."""
    num_query = min(500, (vocab_size - 10) // (2 * 31 + 1))
    return ss.synthetic(num_query=num_query, next_per_query=2, num_common=10, num_distinct=30, vocab_size=vocab_size)


def largest_dense() -> int:
    """Y, Z, gradient and momentum of each: six M x M float32 matrices."""
    return int((BUDGET / (6 * 4)) ** 0.5) // 1000 * 1000


def measure(way: str, vocab_size: int, batch_size: int) -> None:
    classes = setting(vocab_size)
    if way == "dense":
        steps = 6
        plainly = partial(
            train_plainly,
            classes,
            lr_y=1.0,
            lr_z=1.0,
            batch_size=batch_size,
            seq_len=128,
            momentum=0.9,
            seed=0,
            zeros=True,
        )
        torch.set_num_threads(1)
        plainly(steps=1)
        began = time.process_time()
        plainly(steps=steps)
        spent = time.process_time() - began
    else:
        steps = 20_000 if batch_size == 1 else 400
        options = replace(SYN_SMALL, steps=steps, batch_size=batch_size, record_every=None, record=("loss",))
        ss.train(ss.syn_small(), **vars(replace(options, steps=1)))
        began = time.process_time()
        ss.train(classes, **vars(options))
        spent = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"classes": classes.num_classes, "steps_per_second": steps / spent, "peak": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=3, metavar=("WAY", "M", "BATCH"), help=argparse.SUPPRESS)
    case = parser.parse_args().case
    if case:
        measure(case[0], int(case[1]), int(case[2]))
        return
    print(f"{'way':>9} {'M':>7} {'K':>5} {'batch':>5} {'steps/s':>9} {'peak memory':>12}")
    for way, size in (("dense", largest_dense()), ("scansnap", largest_dense()), ("scansnap", OPT)):
        for batch in (1, 128):
            command = [sys.executable, __file__, "--case", way, str(size), str(batch)]
            measured = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            print(
                f"{way:>9} {size:7,d} {measured['classes']:5,d} {batch:5d} {measured['steps_per_second']:9,.1f} "
                f"{measured['peak'] / 2**20:8,.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
