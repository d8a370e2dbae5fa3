"""Where the time of a step goes: the parts of the CPU kernel one by one, beside the arithmetic that cannot be avoided.

    python benchmarks/kernel_parts.py [--queries 10] [--repeats 8]

Syn-Medium, batch 128, T = 128, float32, random start, momentum 0.9, on one core.  Each part is run alone, over all
classes, for groups of 2, 4, 6 and 8 sequences, and its smallest processor time is weighed by how often a batch has such
groups.  The whole is the same step of 64 runs with four seeds, timed in turn with the parts and a matrix product.  Last
is what it takes to move the rows that a step of two larger settings of `scaling.py` moves.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from numba.core import cgutils
from numba.extending import intrinsic

import scansnap as ss
from scansnap.dynamics.compiled import batches, loops, readout, training, training_engine
from scansnap.dynamics.compiled.plan import apart
from scansnap.dynamics.engine import Work
from scansnap.runtime.borrowed import Borrowed

GROUPS = (2, 4, 6, 8)
PER_SEQUENCE = ("attention", "softmax")


@intrinsic
def borrow(typing, fields):  # type: ignore[no-untyped-def]
    """The address of a copy of the tuple, valid while the calling function runs."""
    borrowed = Borrowed(fields)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        address = cgutils.alloca_once(builder, context.get_data_type(fields))
        context.pack_value(builder, fields, args[0], address)
        return address

    return borrowed(fields), generate


def _part(work: Any) -> Any:
    """`work` for every class, `times` times."""

    @njit(fastmath=loops.FAST, error_model="numpy")
    def run(plan, rule, pool, scratch, y, v, z, times, zero, count):  # type: ignore[no-untyped-def]
        plan, rule, pool, scratch = borrow(plan), borrow(rule), borrow(pool), borrow(scratch)  # type: ignore[call-arg]
        for t in range(times):
            for n in range(plan.size.shape[0]):
                work(plan, rule, pool, scratch, y, v, z, n, zero, count, t)

    return run


@njit(forceinline=True)
def attention(plan, rule, pool, scratch, y, v, z, n, zero, count, t):  # type: ignore[no-untyped-def]
    if count == 2:
        readout.class_boost(plan, scratch, z, n)
    readout.directions(plan, scratch, z, n, zero, scratch.weights, zero, n, count)


@njit(forceinline=True)
def logits(plan, rule, pool, scratch, y, v, z, n, zero, count, t):  # type: ignore[no-untyped-def]
    loops.weighted_sums(y, plan.slots, n, plan.size[n], scratch.f, zero, count, scratch.parts, zero)


@njit(forceinline=True)
def softmax(plan, rule, pool, scratch, y, v, z, n, zero, count, t):  # type: ignore[no-untyped-def]
    training._measure(plan, scratch, n, 1.0 / 128, count, 0.0, 0.0)


@njit(forceinline=True)
def gradient_and_step(plan, rule, pool, scratch, y, v, z, n, zero, count, t):  # type: ignore[no-untyped-def]
    training._backward(plan, rule, scratch, y, v, n, count, 1e-3, True)


@njit(forceinline=True)
def drawing(plan, rule, pool, scratch, y, v, z, n, zero, count, t):  # type: ignore[no-untyped-def]
    if n == 0:
        batches.draw_batch(plan, rule, pool, scratch, zero, np.uint64(5), t, zero)


PARTS = {
    "attention": attention,
    "logits": logits,
    "softmax": softmax,
    "gradient and step": gradient_and_step,
    "drawing": drawing,
}


def groups_of_a_batch(num_classes: int) -> Counter[tuple[int, int]]:
    """The expected number of groups of each size, rounded up to even and exact."""
    groups: Counter[tuple[int, int]] = Counter()
    p = 1.0 / num_classes
    for count in range(1, 129):
        chance = math.comb(128, count) * p**count * (1 - p) ** (128 - count)
        for begin in range(0, count, 8):
            exact = min(8, count - begin)
            groups[exact + exact % 2, exact] += num_classes * chance  # type: ignore[assignment]
    return groups


def engine_of(classes: ss.SequenceClasses, runs: int) -> training_engine.KernelEngine:
    options = ss.TrainOptions(
        lr_y=[1 + 0.1 * (i // 4) for i in range(runs)],
        lr_z=1.0,
        seeds=[i % 4 for i in range(runs)],
        steps=10**6,
        batch_size=128,
        seq_len=128,
        init="uniform",
        momentum=0.9,
        record=("loss",),
        record_every=None,
    )
    work = Work.checked(classes, options)
    engine = training_engine.KernelEngine(work, work.start(options.runs), options.runs)
    engine.advance(2)
    return engine


def moving(times: int, rows: int, columns: int) -> float:
    """Seconds that tensors take to read rows of Y, and to move them and their velocity in place, so many times."""
    y, v = torch.zeros(rows, columns), torch.ones(rows, columns)

    def move() -> None:
        y.sum()
        y.add_(v, alpha=0.5)
        v.mul_(0.9)

    return times * min(seconds(move) for _ in range(20))


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=8)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    classes = ss.syn_medium(num_query=asked.queries)
    engine = engine_of(classes, 64)
    plan, rule, pool = engine._plan, engine._rule, engine._pools.of(0, 1)
    state, scratch = engine._state, training_engine._scratch(plan, engine._state, rule)
    y, v, z = (apart(array[0]) for array in (state.decoder, state.decoder_velocity, state.attention_logits))
    matrix = torch.randn(1536, 1536)
    parts = {name: _part(work) for name, work in PARTS.items()}
    fastest: dict[Any, float] = {}
    for _ in range(asked.repeats):
        timed: dict[Any, float] = {"whole": seconds(lambda: engine.advance(engine.step + 20)) / 20 / 64}
        timed["product"] = seconds(lambda: matrix @ matrix)
        for count in GROUPS:
            for name, run in parts.items():
                v[:] = 0.01
                scratch.logits[:] = np.random.default_rng(0).normal(size=scratch.logits.shape)
                run(plan, rule, pool, scratch, y, v, z, 1, 0, count)
                timed[name, count] = seconds(lambda: run(plan, rule, pool, scratch, y, v, z, 40, 0, count)) / 40  # noqa: B023
        fastest = {key: min(value, fastest.get(key, math.inf)) for key, value in timed.items()}
    peak = 2 * 1536**3 / fastest["product"]
    floor = 128 * 2 * (2 * 20 * classes.vocab_size) / peak
    row_bytes = 4 * classes.vocab_size
    print(f"matrix product: {peak / 1e9:.0f} GFLOP/s on one core; the floor is {1e6 * floor:.1f} µs for a run and step")
    print(f"Y and its velocity: {2 * len(y) * row_bytes / 2**10:,.0f} KiB, read and written once a step")
    groups = groups_of_a_batch(classes.num_classes)
    print(f"groups: {sum(groups.values()):.1f}; padded sequences: {sum(g * n for (g, _), n in groups.items()):.0f}")
    total = 0.0
    for name in PARTS:
        if name == "drawing":
            cost = fastest[name, 8] / 16
        else:
            cost = sum(
                times * fastest[name, even] / classes.num_classes * (exact / even if name in PER_SEQUENCE else 1)
                for (even, exact), times in groups.items()
            )
        total += cost
        print(f"{name:>20} {1e6 * cost:7.1f} µs" + (" (one seed for 16 runs)" if name == "drawing" else ""))
    whole = fastest["whole"]
    print(f"{'all other':>20} {1e6 * (whole - total):7.1f} µs")
    print(f"{'whole':>20} {1e6 * whole:7.1f} µs, {floor / whole:.0%} of the matrix product's rate")
    print(
        f"rows of Y moved by tensors: {1e3 * moving(20, 20, 16_000):.1f} ms for M = 16,000 and 20 times 20 rows, "
        f"{1e3 * moving(1, 2010, 2320) * 957 / 2010:.1f} ms for K = 200 and 957 of 2,010 rows"
    )


if __name__ == "__main__":
    main()
