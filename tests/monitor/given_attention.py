"""Snapshots of attention that is written down, as a watch records them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn

import scansnap as ss

Weights = NDArray[np.float64]


def softmax(logits: Weights) -> Weights:
    """Causal attention (..., T, T)."""
    shown = np.where(np.tri(logits.shape[-1], dtype=bool), logits, -np.inf)
    powers = np.exp(shown - shown.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def on_key(key: NDArray[np.int64], weight: float) -> Weights:
    """Causal attention with `weight` on key[row] in each row, and the rest spread evenly over all keys of the row."""
    weights = np.tri(len(key)) * (1 - weight) / np.arange(1, len(key) + 1)[:, None]
    weights[np.arange(len(key)), key] += weight
    return weights


def even(length: int) -> Weights:
    return on_key(np.zeros(length, np.int64), 0.0)


def first(length: int, weight: float) -> Weights:
    return on_key(np.zeros(length, np.int64), weight)


def previous(length: int, weight: float) -> Weights:
    return on_key(np.maximum(np.arange(length) - 1, 0), weight)


def anywhere(length: int, weight: float, rng: np.random.Generator) -> Weights:
    return on_key(rng.integers(0, np.arange(1, length + 1)), weight)


class GivenAttention(nn.Module):
    """Attends with logits (B, H, T, T) that are given, again in windows that are more than these."""

    logits: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.logits[torch.arange(len(x)) % len(self.logits)].softmax(-1)


class GPT(nn.Module):
    """Layers of attention that is given."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleDict({"attention": GivenAttention()}) for _ in range(layers))

    def show(self, weights: Weights) -> None:
        """Attend causally with these weights (layer, head, T, T) from now on."""
        shown = np.where(np.tri(weights.shape[-1], dtype=bool), np.log(np.maximum(weights, 1e-30)), -np.inf)
        for block, logits in zip(self.blocks, torch.from_numpy(shown).float(), strict=True):
            block["attention"].logits = logits[None]  # type: ignore[index, union-attr]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            block["attention"](x)  # type: ignore[index, operator]
        return x


def series(
    patterns: Sequence[Weights], every: int = 50, *, prefix: float = 0.0, logit: float | Weights = 1.0
) -> xr.Dataset:
    """What a watch records of attention (layer, head, T, T); all that it has not measured is given."""
    model = GPT(len(patterns[0]))
    model.show(patterns[0])
    probe = torch.zeros(1, patterns[0].shape[-1], 1)
    watch = ss.watch(model, probe=probe, every=every, rows=None, record=("default", "top_5"), errors="raise")
    for i, weights in enumerate(patterns[1:], 1):
        model.show(weights)
        watch.step(i * every)
    snapshots = watch.dataset
    snapshots["prefix_matching"][...], snapshots["largest_logit"][...] = prefix, logit
    return snapshots


def snapshot(step: int, weights: Weights, **options: Any) -> xr.Dataset:
    """One snapshot at a step."""
    return series([weights], **options).assign_coords(step=[step])


def join(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Snapshots that follow each other."""
    return xr.concat(parts, "step", data_vars="minimal", coords="minimal", compat="override", combine_attrs="override")


def missing(like: xr.Dataset, step: int, reason: str) -> xr.Dataset:
    """A snapshot that failed."""
    empty = like.isel(step=[0]).copy(deep=True)
    for name in empty.data_vars:
        empty[name][...] = np.nan
    return empty.assign_coords(step=[step], status=("step", ["missing"]), reason=("step", [reason]))
