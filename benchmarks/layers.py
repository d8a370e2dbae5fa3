"""Several layers against two slower ways, paired in one process, by processor time on one thread.

    python benchmarks/layers.py [--repeats 5]

Syn-Medium, batch 128, T = 128, SGD with momentum, from zero.  The plain loop is the network as it is written down: the
one-hot features of every position, M x M matrices, autograd, data made in Python.  The second way works on token counts
but carries every token of the vocabulary through every sequence, and leaves the gradient to autograd.  Printed are
medians of the time of one update of one run, when it trains alone and when sixteen do, and medians of paired ratios.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when the libraries are loaded

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import scansnap as ss
from scansnap.dynamics.engine import Work
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
        lr_y=RATE, lr_z=RATE, momentum=MOMENTUM, steps=steps, batch_size=BATCH, seq_len=LENGTH, layers=layers,
        seeds=range(runs), record_every=None, record="loss",
    )  # fmt: skip


def train_on_counts(classes: ss.SequenceClasses, layers: int, steps: int) -> None:
    work = Work.checked(classes, options(layers, steps))
    WholeVocabulary(work, work.start(work.options.runs), work.options.runs).advance(steps)


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
    ss.train(ss.syn_medium(num_query=1), options(2, 1))  # compiles, or reads what was compiled
    print(f"{'layers':>6} {'queries':>7} {'N':>4} {'positions':>12} {'vocabulary':>12} {'scansnap':>11} {'ratios':>12} "
          f"{'of sixteen':>11} {'ratios':>12}")  # fmt: skip
    for queries, layers in SETTINGS:
        classes = ss.syn_medium(num_query=queries)
        steps = 400 // queries**2 + 20
        times = []
        for _ in range(repeats):
            times.append((
                seconds(lambda: train_plainly(classes, layers, 2), 2),  # noqa: B023  (called at once)
                seconds(lambda: train_on_counts(classes, layers, 2), 2),  # noqa: B023
                seconds(lambda: ss.train(classes, options(layers, steps)), steps),  # noqa: B023
                seconds(lambda: ss.train(classes, options(layers, steps // 4, 16)), 16 * (steps // 4)),  # noqa: B023
            ))  # fmt: skip
        plain, whole, ours, many = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
        ratio = {
            (slow, fast): statistics.median(row[slow] / row[fast] for row in times)
            for slow in (0, 1) for fast in (2, 3)
        }  # fmt: skip
        features = len(np.union1d(classes.contextual_tokens, classes.queries))
        print(
            f"{layers:6d} {queries:7d} {features:4d} {plain:9.1f} ms {whole:9.1f} ms {ours:8.2f} ms "
            f"{ratio[0, 2]:6.0f} {ratio[1, 2]:5.0f} {many:8.2f} ms {ratio[0, 3]:6.0f} {ratio[1, 3]:5.0f}"
        )


if __name__ == "__main__":
    main()
