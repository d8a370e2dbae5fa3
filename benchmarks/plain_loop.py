"""The obvious way to train one run: one-hot sequences, `nn.Linear` for Y and Z, autograd, data made in Python.

Every benchmark compares with this.  It does the cheap thing where there is a choice: the query is projected by Z once
per sequence, not every key.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from scansnap import SequenceClasses


def train_plainly(
    classes: SequenceClasses,
    *,
    lr_y: float,
    lr_z: float,
    steps: int,
    batch_size: int,
    seq_len: int,
    momentum: float,
    seed: int,
    zeros: bool = False,
) -> list[float]:
    """The loss of every step."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    size = classes.vocab_size
    decoder = nn.Linear(size, size, bias=False)
    attention = nn.Linear(size, size, bias=False)
    if zeros:
        nn.init.zeros_(decoder.weight)
        nn.init.zeros_(attention.weight)
    groups = [{"params": decoder.parameters(), "lr": lr_y}, {"params": attention.parameters(), "lr": lr_z}]
    optimizer = torch.optim.SGD(groups, momentum=momentum)
    cross_entropy = nn.CrossEntropyLoss()
    losses = []
    for _ in range(steps):
        sequences = np.empty((batch_size, seq_len), np.int64)
        labels = np.empty(batch_size, np.int64)
        for b in range(batch_size):
            n = rng.choice(classes.num_classes, p=classes.weights)
            sequences[b, :-1] = rng.choice(classes.support(n), seq_len - 1, p=classes.support_probs(n))
            sequences[b, -1] = classes.query[n]
            labels[b] = classes.next_token[n]
        one_hot = nn.functional.one_hot(torch.from_numpy(sequences), size).float()  # (B, T, M)
        keys, query = one_hot[:, :-1], one_hot[:, -1]
        weights = torch.softmax((keys @ attention(query)[..., None]).squeeze(2), dim=1)
        mixed = (weights[:, None] @ keys).squeeze(1)
        logits = decoder(mixed / mixed.norm(dim=1, keepdim=True))
        loss = cross_entropy(logits, torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
