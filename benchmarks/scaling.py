"""Cost per step against M, K, T, H, L and the number of runs: a table and a picture.

    python benchmarks/scaling.py [--picture results/scaling.png]

One quantity is varied at a time from a base of 20 classes of 20 tokens (10 common, 10 distinct; 10 queries), T = 128,
batch 128, 16 runs, one head, one layer, zero start, float32.  Each point is the median of five timings, in microseconds
of processor time per run and step (two cores take half as long), and is repeated with a random start, where no output
columns merge and M counts in full.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import scansnap as ss
from scansnap.dynamics.yz_tasks import YZTraining, engine_for

BASE: dict[str, Any] = {"vocab_size": 240, "num_classes": 20, "seq_len": 128, "heads": 1, "layers": 1, "runs": 16}
VARIED: dict[str, tuple[int, ...]] = {
    "vocab_size": (240, 1_000, 4_000, 16_000),
    "num_classes": (2, 6, 20, 60, 200),
    "seq_len": (16, 128, 512, 1_280, 1_281, 16_384, 1_000_000),
    "heads": (1, 2, 4, 8),
    "layers": (1, 2, 3),
    "runs": (1, 2, 4, 16, 64, 256),
}
LABELS = {
    "vocab_size": "vocabulary M",
    "num_classes": "classes K",
    "seq_len": "sequence length T",
    "heads": "heads H",
    "layers": "layers L",
    "runs": "runs",
}


def microseconds(setting: dict[str, Any], init: str) -> float:
    """Per run and step."""
    num_classes = setting["num_classes"]
    used = 10 + 10 * num_classes + num_classes // 2 + num_classes
    classes = ss.synthetic(num_query=num_classes // 2, next_per_query=2, vocab_size=max(used, setting["vocab_size"]))
    options = ss.TrainOptions(
        lr_y=1.0,
        lr_z=1.0,
        steps=10**6,
        seq_len=setting["seq_len"],
        momentum=0.9,
        init=init,
        record_every=None,
        seeds=range(setting["runs"]),
        record=("loss",),
        heads=setting["heads"],
        layers=setting["layers"],
    )
    work = YZTraining.checked(classes, options)
    engine = engine_for(work)(work, work.start(options.runs), options.runs)
    engine.advance(2)
    steps = max(20, 200 // setting["runs"])
    if setting["layers"] > 1:
        steps = 3
    elif init == "uniform":
        steps = max(2, steps * 240 // classes.vocab_size)
    spent = []
    for _ in range(5):
        began = time.process_time()
        engine.advance(engine.step + steps)
        spent.append((time.process_time() - began) / steps / setting["runs"])
    return 1e6 * statistics.median(spent)


def table() -> dict[str, list[tuple[int, float, float]]]:
    costs: dict[str, list[tuple[int, float, float]]] = {}
    for name, values in VARIED.items():
        print(f"\n{LABELS[name]:>20} {'zero start':>12} {'random start':>13}   (µs per run and step)")
        costs[name] = []
        for value in values:
            setting = {**BASE, name: value}
            if name == "vocab_size":
                setting["runs"] = 2  # a random start keeps all M columns of each run
            row = (value, microseconds(setting, "zeros"), microseconds(setting, "uniform"))
            costs[name].append(row)
            print(f"{value:20,d} {row[1]:12.1f} {row[2]:13.1f}", flush=True)
    return costs


def draw(costs: dict[str, list[tuple[int, float, float]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    for axes, (name, rows) in zip(figure.subplots(2, 3, sharey=True).flat, costs.items(), strict=True):
        values, zero, uniform = zip(*rows, strict=True)
        axes.loglog(values, zero, "o-", color="#0072B2", label="zero start")
        axes.loglog(values, uniform, "s--", color="#D55E00", label="random start")
        axes.set_xlabel(LABELS[name])
        if max(values) < 10:
            axes.set_xticks(values, [str(value) for value in values])
            axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    for axes in figure.axes[::3]:
        axes.set_ylabel("µs per run and step")
    figure.axes[0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"\npicture: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, default=Path("results/scaling.png"))
    picture = parser.parse_args().picture
    ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=1)  # compiles
    draw(table(), picture)


if __name__ == "__main__":
    main()
