"""The obvious way to train one run: one-hot sequences, `nn.Linear` for Y and Z, autograd, data made in Python.

Every benchmark compares with this.  It does the cheap thing where there is a choice: the query is projected by Z once
per sequence, not every key.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scansnap import SequenceClasses, sample_sequences

Sequences = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Sequences with the query last (B, T), and the class of each (B,)."""


def train_plainly(
    classes: SequenceClasses,
    *,
    lr_y: float,
    lr_z: float,
    steps: int,
    batch_size: int,
    seq_len: int,
    seed: int,
    momentum: float = 0.0,
    zeros: bool = False,
    optimizer: str = "sgd",
    normalization: str = "l2",
    residual: bool = False,
    heads: int = 1,
    num_sequences: int | None = None,
    learn_position_bias: bool = False,
    dtype: str = "float32",
) -> list[float]:
    """The loss of every step."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    size, kind = classes.vocab_size, getattr(torch, dtype)
    decoders, attentions = (
        nn.ModuleList(nn.Linear(size, size, bias=False, dtype=kind) for _ in range(heads)) for _ in range(2)
    )
    bias = nn.Parameter(torch.zeros(seq_len - 1, dtype=kind), requires_grad=learn_position_bias)
    if zeros:
        for module in (*decoders, *attentions):
            nn.init.zeros_(module.weight)
    rates = {**dict.fromkeys(decoders.parameters(), lr_y), **dict.fromkeys(attentions.parameters(), lr_z)}
    if learn_position_bias:
        rates[bias] = lr_z
    move = _optimizer(optimizer, rates, momentum)
    draw = _data(classes, batch_size, seq_len, num_sequences, rng)
    losses = []
    for step in range(steps):
        sequences, owner = draw(step)
        one_hot = nn.functional.one_hot(torch.from_numpy(sequences), size).to(kind)  # (B, T, M)
        keys, query = one_hot[:, :-1], one_hot[:, -1]
        logits = torch.zeros((), dtype=kind)
        for decoder, attention in zip(decoders, attentions, strict=True):
            weights = torch.softmax((keys @ attention(query)[..., None]).squeeze(2) + bias, dim=1)
            mixed = _normalize((weights[:, None] @ keys).squeeze(1), normalization)
            if residual:
                mixed = _normalize(mixed + query, normalization)
            logits = logits + decoder(mixed)
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(classes.next_token[owner]))
        for parameter in rates:
            parameter.grad = None
        loss.backward()
        move()
        losses.append(loss.item())
    return losses


def _normalize(x: Tensor, normalization: str) -> Tensor:
    if normalization == "layer":
        x = x - x.mean(dim=1, keepdim=True)
    return x / x.norm(dim=1, keepdim=True)


def _optimizer(name: str, rates: dict[nn.Parameter, float], momentum: float) -> Callable[[], object]:
    groups = [{"params": [parameter], "lr": rate} for parameter, rate in rates.items()]
    if name == "sgd":
        return torch.optim.SGD(groups, momentum=momentum).step
    if name == "adam":
        return torch.optim.Adam(groups).step

    @torch.no_grad()
    def step() -> None:
        for parameter, rate in rates.items():
            assert parameter.grad is not None
            slope = parameter.grad.sign() if name == "sign_sgd" else parameter.grad / parameter.grad.norm()
            parameter.sub_(slope, alpha=rate)

    return step


def _data(
    classes: SequenceClasses, batch_size: int, seq_len: int, num_sequences: int | None, rng: np.random.Generator
) -> Callable[[int], Sequences]:
    """The batch of each step; tokens that depend on their position come from this package, at no cost to the loop."""
    if classes.num_buckets:
        return lambda step: sample_sequences(classes, num=batch_size, seq_len=seq_len, seed=step)

    def draw(count: int) -> Sequences:
        sequences, owner = np.empty((count, seq_len), np.int64), np.empty(count, np.int64)
        for b in range(count):
            n = owner[b] = rng.choice(classes.num_classes, p=classes.weights)
            sequences[b, :-1] = rng.choice(classes.support(n), seq_len - 1, p=classes.support_probs(n))
            sequences[b, -1] = classes.query[n]
        return sequences, owner

    if num_sequences is None:
        return lambda step: draw(batch_size)
    fixed, owner = draw(num_sequences)

    def choose(step: int) -> Sequences:
        index = rng.integers(num_sequences, size=batch_size)
        return fixed[index], owner[index]

    return choose
