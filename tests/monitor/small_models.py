"""Small models in training, for tests of what a watch leaves as it was."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

TOKENS, LENGTH = 23, 12


class Attention(nn.Module):
    """Causal attention by the fused kernel, as nanoGPT writes it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, 2))
        dropout = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, None, dropout, is_causal=True)
        return functional.dropout(self.c_proj(y.transpose(1, 2).flatten(2)), self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(width), Attention(width, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class GPT(nn.Module):
    """A small GPT; `checkpoints` makes it recompute activations."""

    def __init__(
        self, width: int = 16, heads: int = 2, layers: int = 2, dropout: float = 0.1, checkpoints: bool = False
    ) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(TOKENS, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.head, self.checkpoints = nn.Linear(width, TOKENS), checkpoints

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints and self.training else block(x)
        return self.head(x)


class ByHand(nn.Module):
    """Attention as nanoGPT writes it where it has no fused kernel."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.c_attn, self.heads, self.dropout = nn.Linear(width, 3 * width), heads, nn.Dropout(0.2)
        self.register_buffer("bias", torch.ones(64, 64).tril())

    def project(self, x: Tensor) -> list[Tensor]:
        return [t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, 2)]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        logits = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        length = x.shape[1]
        logits = logits.masked_fill(self.bias[:length, :length] == 0, float("-inf"))
        return (self.dropout(functional.softmax(logits, dim=-1)) @ v).transpose(1, 2).flatten(2)


class Restless(GPT):
    """Changes, in every mode, all that a forward pass can change."""

    def __init__(self) -> None:
        super().__init__()
        self.batch_norm = nn.BatchNorm1d(16)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(16))
        self.passes, self.seen, self.last = 0, list[float](), torch.zeros(16)
        self.noise, self.spare = 0.1, 1

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        self.count += 1  # in place
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))  # replaced
        self.last.copy_(x.detach()[0, 0])  # not a buffer
        self.passes += 1
        if not self.training:  # what training itself does not do
            random.random(), np.random.rand()  # noqa: NPY002
            self.extra = 1
            vars(self).pop("spare", None)
            self.register_buffer("new", torch.zeros(1))
        self.seen.append(float(self.mean[0]))
        x = x + self.noise * torch.randn(x.shape) + 0.01 * self.mean + 0.001 * self.passes * self.seen[-1]
        x = self.batch_norm(x.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def ids(windows: int = 3, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(0, TOKENS, (windows, length), generator=torch.Generator().manual_seed(seed))


def train(
    model: nn.Module,
    steps: int,
    *,
    each: Callable[[int], Any] = lambda step: None,
    autocast: bool = False,
    inside: bool = False,
) -> list[Tensor]:
    """Train, calling `each` after every update, or before it inside of autocast; all that training leaves."""
    torch.manual_seed(7), random.seed(7), np.random.seed(7)  # noqa: NPY002
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for step in range(steps):
        batch = ids(4, LENGTH + 1, seed=step + 1)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            if inside:  # what a snapshot leaves in autocast's cache would be used next
                each(step)
            logits = model(batch[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if not inside:
            each(step)
    moments = [t for state in optimizer.state.values() for t in state.values()]
    drawn = torch.tensor([torch.rand(()), random.random(), np.random.rand()])  # noqa: NPY002
    return [*model.state_dict().values(), *moments, *losses, drawn]
