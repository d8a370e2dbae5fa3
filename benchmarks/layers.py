"""Several layers against two slower ways, paired in one process, by processor time on one thread.

    python benchmarks/layers.py [--repeats 5]

Syn-Medium, batch 128, T = 128, SGD with momentum, from zero.  The plain loop is the network as it is written down: the
one-hot features of every position, M x M matrices, autograd, data made in Python.  The second way works on token counts
but carries every token of the vocabulary through every sequence, and leaves the gradient to autograd.  Printed are
medians of the time of one update of one run, when it trains alone and when sixteen do, and medians of paired ratios.
The last column is the share of the time of sixteen that the arithmetic (counted in `dynamics/compiled/layers.py`) would
take at the rate of a large float32 matrix product.
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
from scansnap.dynamics.engine import Engine, Work, engine_for
from scansnap.dynamics.gradients import Batch, softmax_residual
from scansnap.dynamics.layered_engine import LayeredEngine, Measures

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


class WholeVocabulary(LayeredEngine):
    """Counts, with the features of all N tokens in every sequence."""

    def _forward(self, parameters: dict[str, torch.Tensor], batch: Batch) -> Measures:
        layers, log_a = self._options.layers, torch.log(batch.token_weights)
        (runs, sequences, context), size = log_a.shape, parameters["attention_logits_0"].shape[-1]
        x = torch.eye(size, dtype=log_a.dtype, device=log_a.device).expand(runs, sequences, size, size)
        for j in range(layers - 1):
            scores = x @ parameters[f"attention_logits_{j}"][:, None] @ x[:, :, :context].mT + log_a[:, :, None]
            mixed = unit(torch.softmax(scores, dim=3) @ x[:, :, :context])
            x = unit(x + torch.tanh(mixed @ parameters[f"decoder_{j}"][:, None]))
        own = x.gather(2, self._query[batch.class_index][..., None, None].expand(-1, -1, 1, size))
        scores = (own @ parameters[f"attention_logits_{layers - 1}"][:, None] @ x[:, :, :context].mT).squeeze(2)
        c = torch.softmax(scores + log_a, dim=2)
        logits = unit((c[:, :, None] @ x[:, :, :context]).squeeze(2)) @ parameters[f"decoder_{layers - 1}"]
        next_column = self._layout.next_column[batch.class_index]
        _, _, correct = softmax_residual(self._layout, logits.detach(), next_column)
        log_p = torch.log_softmax(logits + self._layout.log_multiplicity, dim=2)
        loss = -log_p.gather(2, next_column[..., None]).squeeze(2)
        return loss.mean(1), correct.mean(1), c


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


def engine_of(classes: ss.SequenceClasses, options: ss.TrainOptions, kind: type[Engine] | None = None) -> Engine:
    """The engine that `train` would use, or another, after an update that warms it up."""
    work = Work.checked(classes, options)
    engine = (kind or engine_for(work))(work, work.start(options.runs), options.runs)
    engine.advance(1)
    return engine


def seconds(work: Callable[[], object], updates: int) -> float:
    """Processor time of one update."""
    began = time.process_time()
    work()
    return (time.process_time() - began) / updates


def operations(classes: ss.SequenceClasses, layers: int) -> float:
    """Multiply-adds times two in an update of one run."""
    size = len(np.union1d(classes.contextual_tokens, classes.queries))
    tokens, columns = len(classes.support(0)), classes.num_classes + 1
    rows = tokens + 1
    first = 3 * rows * tokens * size
    between = 6 * rows * size * (size + tokens)
    last = 3 * size * (size + columns) + 6 * tokens * size
    return 2 * BATCH * (first + (layers - 2) * between + last)


def matrix_peak() -> float:
    """Float32 operations per second of processor time in a large matrix product."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / min(seconds(lambda: a @ b, 1) for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(
        f"{'layers':>6} {'queries':>7} {'N':>4} {'positions':>12} {'vocabulary':>12} {'scansnap':>11} {'ratios':>12} "
        f"{'of sixteen':>11} {'ratios':>12} {'of peak':>8}"
    )
    for queries, layers in SETTINGS:
        classes = ss.syn_medium(num_query=queries)
        steps = 400 // queries**2 + 20
        times = []
        for _ in range(repeats):
            whole = engine_of(classes, options(layers, 3), WholeVocabulary)
            alone = engine_of(classes, options(layers, steps + 1))
            many = engine_of(classes, options(layers, steps // 4 + 1, 16))
            times.append(
                (
                    seconds(partial(train_plainly, classes, layers, 2), 2),
                    seconds(partial(whole.advance, 3), 2),
                    seconds(partial(alone.advance, steps + 1), steps),
                    seconds(partial(many.advance, steps // 4 + 1), 16 * (steps // 4)),
                    operations(classes, layers) / matrix_peak(),
                )
            )
        plain, dense, ours, shared, _ = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
        ratio = {
            (slow, fast): statistics.median(row[slow] / row[fast] for row in times)
            for slow in (0, 1)
            for fast in (2, 3)
        }
        share = statistics.median(row[4] / row[3] for row in times)
        features = len(np.union1d(classes.contextual_tokens, classes.queries))
        print(
            f"{layers:6d} {queries:7d} {features:4d} {plain:9.1f} ms {dense:9.1f} ms {ours:8.2f} ms "
            f"{ratio[0, 2]:6.0f} {ratio[1, 2]:5.0f} {shared:8.2f} ms {ratio[0, 3]:6.0f} {ratio[1, 3]:5.0f} {share:8.0%}"
        )


if __name__ == "__main__":
    main()
