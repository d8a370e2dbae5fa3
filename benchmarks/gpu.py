"""The 640 runs of Figure 6 on a GPU: checked against the CPU kernel, then timed.

    python benchmarks/gpu.py [--sweep 100000]

Timings are wall-clock seconds of whole `train` calls, state and results included, after one call of each shape has
compiled and warmed everything; the steps alone are timed with the same engine object.  With `--sweep` that many runs of
Syn-Medium with 3 queries, 100 updates each, are made in one sweep, and a fiftieth of them on the CPU's cores.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import scansnap as ss
from figure6_speed import PUBLISHED, QUERIES, train_panel
from scansnap.dynamics.yz_tasks import YZTraining, engine_for

ON_GPU = replace(PUBLISHED, device="cuda")


def compare() -> None:
    """The same seeds on both devices: equal data, so runs differ by rounding alone."""
    double, single = replace(PUBLISHED, dtype="float64"), replace(PUBLISHED, steps=20)
    for options in (double, single):
        dtype, steps = options.dtype, options.steps
        for q in QUERIES:
            on_cpu = replace(options, record=("loss", "attention_logits"))
            cpu, gpu = train_panel(q, on_cpu), train_panel(q, replace(on_cpu, device="cuda"))
            gap = float(np.abs(cpu["attention_logits"] - gpu["attention_logits"]).max())
            first = float(np.abs(cpu["loss"] - gpu["loss"]).max())
            print(f"{dtype} {q:2d} queries, {steps} steps: logits differ by at most {gap:.1e}, losses by {first:.1e}")


def time_calls(repeats: int = 5) -> None:
    rows = []
    for q in QUERIES:
        train_panel(q, ON_GPU)
        seconds = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            began = time.perf_counter()
            train_panel(q, ON_GPU)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        rows.append((q, statistics.median(seconds), *time_steps(q)))
    print("queries  train call (s)  engine and graph (s)  100 steps (s)")
    for q, call, ready, steps in rows:
        print(f"{q:7d}  {call:14.4f}  {ready:20.4f}  {steps:13.4f}")
    print(f"    all  {sum(r[1] for r in rows):14.4f}  {sum(r[2] for r in rows):20.4f}  {sum(r[3] for r in rows):13.4f}")


def time_steps(num_query: int) -> tuple[float, float]:
    """Seconds to make an engine and take its first step, and for the steps of a ready one."""
    work = YZTraining.checked(ss.syn_medium(num_query=num_query), replace(ON_GPU, steps=202, record=("loss",)))
    runs = work.options.runs
    start = work.start(runs)
    began = time.perf_counter()
    engine = engine_for(work)(work, start, runs)
    engine.advance(1)
    torch.cuda.synchronize()
    ready = time.perf_counter() - began
    began = time.perf_counter()
    engine.advance(101)
    torch.cuda.synchronize()
    return ready, time.perf_counter() - began


def time_sweep(count: int) -> None:
    """Runs per second in one sweep on the GPU, and on all cores."""
    rates = [0.5 * 1.1**k for k in range(10)]
    common = {"steps": 100, "init": "uniform", "momentum": 0.9, "record": ("loss", "entropy"), "record_every": 100}
    for device, runs in (("cuda", count), ("cpu", count // 50)):
        grid: dict[str, Any] = {"lr_z": rates, "lr_y": rates, "device": device, **common}
        ss.sweep("syn-medium-3", seeds=range(runs // 100), **{**grid, "steps": 1})
        began = time.perf_counter()
        ds = ss.sweep("syn-medium-3", seeds=range(runs // 100), **grid)
        spent = time.perf_counter() - began
        losses = ds["loss"].isel(step=-1)
        assert np.isfinite(losses.values).all()
        print(f"{device:>4}: {losses.size:,} runs in {spent:.1f} s, {losses.size / spent:,.0f} a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=int, default=0)
    count = parser.parse_args().sweep
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    if count:
        time_sweep(count)
        return
    compare()
    time_calls()


if __name__ == "__main__":
    main()
