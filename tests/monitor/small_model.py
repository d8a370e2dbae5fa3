"""A small causal transformer, written the way many are."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SmallAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        return self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))


class SmallModel(nn.Module):
    def __init__(self, vocab: int = 20, width: int = 16, heads: int = 2, layers: int = 2, length: int = 16) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(SmallAttention(width, heads) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.decoder = nn.Linear(width, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.position.weight[: ids.shape[1]]
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + block(norm(x))
        return self.decoder(x)


def train(model: nn.Module, steps: int, watch=None, seed: int = 0) -> None:
    """Updates on random tokens, repeated."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        half = torch.randint(0, 20, (4, 8), generator=generator)
        ids = torch.cat([half, half], 1)
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watch is not None:
            watch.step()
