"""Several layers against a plain loop, paired in one process, by processor time on one thread.

    python benchmarks/layers.py [--repeats 5]

Syn-Medium, batch 128, T = 128, SGD with momentum, from zero.  The plain loop is the network as it is written down: the
one-hot features of every position, M x M matrices, autograd, data made in Python.  Printed are medians of the time of
one update of one run, when it trains alone and when sixteen do, and medians of paired ratios.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when the libraries are loaded

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

import scansnap as ss
from scansnap.dynamics.task import Engine
from scansnap.dynamics.yz_tasks import YZTraining, engine_for

BATCH, LENGTH, RATE, MOMENTUM = 128, 128, 1.0, 0.9
SETTINGS = [(queries, layers) for layers in (2, 3) for queries in (1, 3, 10)]


def unit(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def train_plainly(classes: ss.SequenceClasses, layers: int, steps: int) -> list[float]:
    """The loss of every update, position by position."""
    rng, size = np.random.default_rng(0), classes.vocab_size
    decoders = [torch.nn.Parameter(torch.zeros(size, size)) for _ in range(layers)]
    attentions = [torch.nn.Parameter(torch.zeros(size, size)) for _ in range(layers)]
    optimizer = torch.optim.SGD([*decoders, *attentions], lr=RATE, momentum=MOMENTUM)
    losses = []
    for _ in range(steps):
        owner = rng.choice(classes.num_classes, BATCH, p=classes.weights)
        sequences = np.empty((BATCH, LENGTH), np.int64)
        for sequence, n in zip(sequences, owner, strict=True):
            sequence[:-1] = rng.choice(classes.support(n), LENGTH - 1, p=classes.support_probs(n))
            sequence[-1] = classes.query[n]
        x = torch.nn.functional.one_hot(torch.from_numpy(sequences), size).float()  # (B, T, M)
        for decoder, attention in zip(decoders[:-1], attentions[:-1], strict=True):
            weights = torch.softmax(x @ attention @ x[:, :-1].mT, dim=2)
            x = unit(x + torch.tanh(unit(weights @ x[:, :-1]) @ decoder))
        weights = torch.softmax((x[:, -1:] @ attentions[-1]) @ x[:, :-1].mT, dim=2)
        logits = (unit(weights @ x[:, :-1]) @ decoders[-1]).squeeze(1)
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(classes.next_token[owner]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def options(layers: int, steps: int, runs: int = 1) -> ss.TrainOptions:
    return ss.TrainOptions(
        lr_y=RATE,
        lr_z=RATE,
        momentum=MOMENTUM,
        steps=steps,
        batch_size=BATCH,
        seq_len=LENGTH,
        layers=layers,
        seeds=range(runs),
        record_every=None,
        record="loss",
    )


def engine_of(classes: ss.SequenceClasses, options: ss.TrainOptions) -> Engine:
    """The engine that `train` uses, after an update that warms it up."""
    work = YZTraining.checked(classes, options)
    engine = engine_for(work)(work, work.start(options.runs), options.runs)
    engine.advance(1)
    return engine


def seconds(work: Callable[[], object], updates: int) -> float:
    """Processor time of one update."""
    began = time.process_time()
    work()
    return (time.process_time() - began) / updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(f"{'layers':>6} {'queries':>7} {'positions':>12} {'alone':>11} {'ratio':>6} {'of sixteen':>11} {'ratio':>6}")
    for queries, layers in SETTINGS:
        classes = ss.syn_medium(num_query=queries)
        steps = 40 // queries + 8
        times = []
        for _ in range(repeats):
            alone = engine_of(classes, options(layers, steps + 1))
            many = engine_of(classes, options(layers, steps // 4 + 1, 16))
            times.append(
                (
                    seconds(partial(train_plainly, classes, layers, 2), 2),
                    seconds(partial(alone.advance, steps + 1), steps),
                    seconds(partial(many.advance, steps // 4 + 1), 16 * (steps // 4)),
                )
            )
        plain, ours, shared = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
        ratios = [statistics.median(row[0] / row[k] for row in times) for k in (1, 2)]
        own = f"{ours:8.2f} ms {ratios[0]:6.0f} {shared:8.2f} ms {ratios[1]:6.0f}"
        print(f"{layers:6d} {queries:7d} {plain:9.1f} ms {own}")


if __name__ == "__main__":
    main()
