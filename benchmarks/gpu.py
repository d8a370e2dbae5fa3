"""The 640 runs of Figure 6 on a GPU: checked against the CPU kernel, then timed.

    python benchmarks/gpu.py

Timings are wall-clock seconds of whole `train` calls, state and results included, after one call of each shape has
compiled and warmed everything; the steps alone are timed with the same engine object.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch

import scansnap as ss
from figure6_speed import QUERIES, grid
from scansnap.dynamics.engine import make_engine
from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.start import make_start


def published(device: str, num_query: int, **more: Any) -> Any:
    options: dict[str, Any] = {
        "steps": 100, "momentum": 0.9, "init": "uniform", "record_every": 100, "record": ("loss", "entropy"),
    }  # fmt: skip
    return ss.train(ss.syn_medium(num_query=num_query), device=device, **{**grid(), **options, **more})


def compare() -> None:
    """The same seeds on both devices: equal data, so runs differ by rounding alone."""
    for dtype, steps in (("float64", 100), ("float32", 20)):
        for q in QUERIES:
            more = {"dtype": dtype, "steps": steps, "record_every": steps, "record": ("loss", "attention_logits")}
            cpu, gpu = published("cpu", q, **more), published("cuda", q, **more)
            gap = float(np.abs(cpu["attention_logits"] - gpu["attention_logits"]).max())
            first = float(np.abs(cpu["loss"] - gpu["loss"]).max())
            print(f"{dtype} {q:2d} queries, {steps} steps: logits differ by at most {gap:.1e}, losses by {first:.1e}")


def time_calls(repeats: int = 5) -> None:
    rows = []
    for q in QUERIES:
        published("cuda", q)
        seconds = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            began = time.perf_counter()
            published("cuda", q)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        rows.append((q, statistics.median(seconds), *time_steps(q)))
    print("queries  train call (s)  engine and graph (s)  100 steps (s)")
    for q, call, ready, steps in rows:
        print(f"{q:7d}  {call:14.4f}  {ready:20.4f}  {steps:13.4f}")
    print(f"    all  {sum(r[1] for r in rows):14.4f}  {sum(r[2] for r in rows):20.4f}  {sum(r[3] for r in rows):13.4f}")


def time_steps(num_query: int) -> tuple[float, float]:
    """Seconds to make an engine and take its first step, and for the steps of a ready one."""
    runs = Runs.checked(**grid())
    options = TrainOptions.checked(
        steps=202, batch_size=128, seq_len=128, optimizer="sgd", momentum=0.9, decoder_gradient="true", dtype="float32",
        device="cuda", record_every=202, record=("loss",),
    )  # fmt: skip
    start = make_start(ss.syn_medium(num_query=num_query), "uniform", runs.seed, "float32")
    began = time.perf_counter()
    engine = make_engine(start, options, runs)
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
