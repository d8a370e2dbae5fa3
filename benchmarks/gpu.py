"""The 640 runs of Figure 6 on a GPU: checked against the CPU kernel, then timed.

    python benchmarks/gpu.py

Timings are wall-clock seconds of whole `train` calls, state and results included, after one call of each shape has
compiled and warmed everything; the steps alone are timed with the same engine object.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import numpy as np
import torch

import scansnap as ss
from figure6_speed import PUBLISHED, QUERIES, train_panel
from scansnap.dynamics.engine import Work, engine_for

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
    work = Work.checked(ss.syn_medium(num_query=num_query), replace(ON_GPU, steps=202, record=("loss",)))
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


def main() -> None:
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    compare()
    time_calls()


if __name__ == "__main__":
    main()
