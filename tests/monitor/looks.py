"""Datasets of looks made from attention that is written down, measured slowly and one row at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

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


def look(
    step: int,
    weights: Weights,
    before: Weights | None = None,
    *,
    prefix: float = 0.0,
    logit: float | NDArray[np.float64] = 1.0,
    rate: float = np.nan,
) -> xr.Dataset:
    """A look at causal attention (layer, head, T, T)."""
    layers, heads, length, _ = weights.shape
    sums: dict[str, Weights] = {}
    for row in range(1, length):  # the first row has one key
        p = weights[:, :, row, : row + 1]
        entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(-1)
        ranked = np.sort(p, -1)[..., ::-1]
        moved = np.full_like(entropy, np.nan)
        if before is not None:
            moved = 0.5 * np.abs(p - before[:, :, row, : row + 1]).sum(-1)
        measured = {
            "entropy": entropy,
            "normalized_entropy": entropy / np.log(row + 1),
            "effective_keys": 1 / (p**2).sum(-1),
            "top_1": ranked[..., 0],
            "top_5": ranked[..., :5].sum(-1),
            "even_weight": np.full_like(entropy, 1 / (row + 1)),
            "first_token": p[..., 0],
            "previous_token": p[..., row - 1],
            "moved": moved,
        }
        sums = {name: sums.get(name, 0.0) + v for name, v in measured.items()}
    values = {name: total[None] / (length - 1) for name, total in sums.items()}
    values |= {name: v[None] for name, v in places(weights).items()}
    values |= {name: np.full((1, layers, heads), np.nan) for name in ("dormant_rows", "token_weight", "token_id")}
    values["prefix_matching"] = np.full((1, layers, heads), prefix)
    values["largest_logit"] = np.broadcast_to(np.asarray(logit, np.float64), (1, layers, heads)).copy()
    values["finite"] = np.ones((1, layers, heads))
    values["learned_sink"] = np.full((1, layers, heads), np.nan)
    shown = min(length, 48)
    pattern = weights[None, :, :, :shown, :shown].astype(np.float32)
    return xr.Dataset(
        {
            **{name: (("step", "layer", "head"), v) for name, v in values.items()},
            "pattern": (("step", "layer", "head", "row", "key"), pattern),
            "loss": ("step", [np.nan]),
            "learning_rate": ("step", [rate]),
        },
        coords={
            "step": [step],
            "layer": np.arange(layers),
            "head": np.arange(heads),
            "module": ("layer", [f"blocks.{i}.attention" for i in range(layers)]),
            "attention_kind": ("layer", ["causal"] * layers),
            "status": ("step", ["ok"]),
            "reason": ("step", [""]),
            "token": ("row", [f"t{i}" for i in range(shown)]),
        },
        attrs={"kind": "watch", "model": "GPT", "probe": "2 windows of 16 tokens", "rows": 256, "every": 50},
    )


def places(weights: Weights) -> dict[str, Weights]:
    """On which distance and on which position most of the attention of each head lies, and how much of it."""
    length = weights.shape[-1]
    found: dict[str, Weights] = {}
    for name in ("offset", "position"):
        means = {}
        for place in range(length):
            rows = range(max(place, 1), length)
            if 2 * len(rows) >= length - 1 and (name == "position" or place <= 16):
                keys = [place if name == "position" else row - place for row in rows]
                means[place] = weights[:, :, list(rows), keys].mean(-1)
        found[f"{name}_weight"] = np.max(list(means.values()), 0)
        found[name] = np.array(list(means))[np.argmax(list(means.values()), 0)].astype(float)
    return found


def series(patterns: Sequence[Weights], every: int = 50, **options: float) -> xr.Dataset:
    """Looks at attention (layer, head, T, T) that follow each other."""
    before = [None, *patterns[:-1]]
    looks = [look(i * every, now, b, **options) for i, (now, b) in enumerate(zip(patterns, before, strict=True))]
    return xr.concat(looks, "step", data_vars="minimal", coords="minimal", compat="override", combine_attrs="override")


def missing(like: xr.Dataset, step: int, reason: str) -> xr.Dataset:
    """A look that failed."""
    empty = like.isel(step=[0]).copy(deep=True)
    for name in empty.data_vars:
        empty[name][...] = np.nan
    return empty.assign_coords(step=[step], status=("step", ["missing"]), reason=("step", [reason]))
