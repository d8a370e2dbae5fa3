"""Every system against a plain autograd loop over the same seeds, and its flow to 10^12, in processor time.

    python benchmarks/systems.py [--seeds 64] [--repeats 3] [--only joma]

The loop trains one seed after another: the model as it is written down, in vectors, `backward` and `torch.optim`, on
the data of the system.  Systems that are not written down in `LOSSES`, such as those of installed papers, give the loop
the loss of their own code.  Both sides run on one thread in float32, in turns.  Printed are medians of the time of one
update of one run and of the ratio, then the time of one flow from t = 0 to 10^12 with equal rates (to 10^4 if
every update samples).  Systems whose products take most of the time are also measured in a small size.
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when the libraries are loaded

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, gelu, one_hot, softplus

import scansnap as ss

Tensors = dict[str, Tensor]


def joma_loss(system: Any, p: Tensors, data: Tensors) -> Tensor:
    b = (data["x"].log() + p["z"][:, None]).softmax(-1)  # (query, context, token)
    logits = gelu(b @ p["v"] + p["r"][:, None]) @ data["output"]
    return cross_entropy(logits.flatten(0, 1), data["label"].flatten())


def reversal_loss(system: Any, p: Tensors, data: Tensors) -> Tensor:
    theta = p["theta"] if "theta" in p else p["p"] @ p["q"].T
    logits = data["embedding"][system.trained[:, 0]] @ theta @ data["embedding"].T
    return cross_entropy(logits, torch.as_tensor(system.trained[:, 2]))


def selection_loss(system: Any, p: Tensors, data: Tensors) -> Tensor:
    attention = torch.einsum("ntd,dq,nq->nt", data["keys"], p["W"], data["query"]).softmax(-1)
    return softplus(-(attention * data["scores"]).sum(-1)).mean()


def next_token_loss(system: Any, p: Tensors, data: Tensors) -> Tensor:
    log_probs = (data["basis"] @ p["u"] + data["counts"].log()).log_softmax(-1)
    return -(data["weight"] * log_probs.gather(1, data["target"][:, None])[:, 0]).sum()


def sink_loss(system: Any, p: Tensors, data: Tensors) -> Tensor:
    b = p["alpha"].exp() / (p["alpha"].exp() + system.context)
    logits = data["target"].log() + b * p["beta"] + (1 - b) * system.copying * data["frequency"]
    return (data["target"] * (data["target"].log() - logits.log_softmax(-1))).sum(-1).mean()


def layer_loss(system: Any, p: Tensors, data: Tensors) -> Tensor:
    x, size = data["tokens"], system.tokens
    keys, queries = one_hot(x[:, :-1], size + 1).float(), one_hot(x[:, 1:-1], size).float()
    scores = queries @ p["scores"] @ keys.mT
    scores = scores + (queries @ p["previous"])[..., None] * torch.eye(*scores.shape[1:])
    attention = scores.masked_fill(torch.ones(scores.shape[1:]).tril(1) == 0, -torch.inf).softmax(-1)
    return cross_entropy((queries @ p["bigram"] + attention @ keys @ p["values"]).flatten(0, 1), x[:, 2:].flatten())


def own_loss(system: Any, p: Tensors, data: Tensors) -> Tensor:
    """The loss that the system's code returns, for one run."""
    of_one_run = ({name: values[None] for name, values in arrays.items()} for arrays in (p, data))
    return system.gradient(*of_one_run)[1][0]


LOSSES = {"joma": joma_loss, "reversal": reversal_loss, "reversal-factored": reversal_loss, "sinks": sink_loss,
          "selection": selection_loss, "next_token": next_token_loss, "bigram-backcopy": layer_loss}  # fmt: skip


SMALL: dict[str, dict[str, Any]] = {
    "reversal": {"pairs": 8, "both": 4},
    "reversal-factored": {"pairs": 8, "both": 4, "rank": 4},
    "bigram-backcopy": {"sequences": 1, "length": 8},
}


def train_plainly(name: str, system: ss.System, rate: float, steps: int, seed: int) -> float:
    """Gradient descent of one seed; returns the last loss."""
    seeds = np.array([seed], np.uint64)

    def draw(step: int | None) -> Tensors:
        arrays = {key: torch.as_tensor(values[0]) for key, values in system.data(seeds, step).items()}
        return {key: values.float() if values.is_floating_point() else values for key, values in arrays.items()}

    blocks = {key: torch.tensor(values[0]).float().requires_grad_() for key, values in system.start(seeds).items()}
    optimizer, data = torch.optim.SGD(blocks.values(), lr=rate), draw(None)
    plain_loss = LOSSES.get(name, own_loss)
    for step in range(steps):
        loss = plain_loss(system, blocks, draw(step) if system.samples else data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return plain_loss(system, blocks, draw(steps) if system.samples else data).item()


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def compare(name: str, settings: dict[str, Any], seeds: int, repeats: int, rate: float = 0.1, steps: int = 200) -> str:
    """A row of the table; both sides must reach the same loss."""
    system, times = replace(ss.SYSTEMS.member(name), **settings), []
    options: dict[str, Any] = {"steps": steps, "record": "loss", "record_every": None, "progress": False}
    batched = partial(ss.train, system, **dict.fromkeys(system.rates, rate), **options)
    batched(seeds=range(2)), train_plainly(name, system, rate, 2, 0)  # warm up
    for _ in range(repeats):
        plain, last = seconds(partial(train_plainly, name, system, rate, steps, 1))
        ours, run = seconds(partial(batched, seeds=range(seeds)))
        assert abs(float(run["loss"][1, -1]) - last) < 1e-3 * (1 + last), f"{name}: {run['loss'][1, -1]} and {last}"
        times.append((plain / steps, ours / (seeds * steps)))
    end = 1e4 if system.samples else 1e12
    flow, _ = seconds(partial(ss.flow, system, **dict.fromkeys(system.rates, 1.0), times=[end], progress=False))
    before, now = (1e6 * statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(plain / ours for plain, ours in times)
    return f"{name + ', small' * bool(settings):25s} {before:6.0f} µs {now:6.1f} µs {ratio:6.1f} {flow:6.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=list(ss.SYSTEMS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'system':25s} {'plain':>9} {'batched':>9} {'ratio':>6} {'flow':>8}")
    for name in [arguments.only] if arguments.only else ss.SYSTEMS:
        for settings in ({}, SMALL[name]) if name in SMALL else ({},):
            print(compare(name, settings, arguments.seeds, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
