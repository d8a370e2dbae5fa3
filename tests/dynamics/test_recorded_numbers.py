"""Numbers of an earlier version: a hundred random settings must give them again, to rounding.

`recorded/settings.json` was written by the version before the kernel became plain numba, in float64: losses, entropies
and attention logits at the end of each setting.  A change of the engines must not change them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss

RECORDED = json.loads((Path(__file__).parent / "recorded" / "settings.json").read_text())


def random_classes(rng: np.random.Generator) -> ss.SequenceClasses:
    """Named classes, or up to five classes of random tokens with one or two queries."""
    pick = rng.integers(7)
    if pick == 0:
        return ss.syn_small()
    if pick == 1:
        return ss.syn_medium(num_query=int(rng.choice([1, 3])))
    if pick == 2:
        return ss.single_common()
    if pick == 3:
        return ss.local_common()
    classes, tokens = int(rng.integers(2, 6)), int(rng.integers(4, 12))
    probs = rng.dirichlet(np.ones(tokens), classes) * (rng.random((classes, tokens)) < 0.7)
    probs[:, 0] += 0.05
    probs /= probs.sum(1, keepdims=True)
    queries = int(rng.integers(1, 3))
    query = (np.arange(classes) % queries) + tokens
    if pick == 6:  # the query is a contextual token
        query[:] = tokens - 1
        probs[:, tokens - 1] += 0.1
        probs /= probs.sum(1, keepdims=True)
    size = tokens + queries + classes
    return ss.SequenceClasses(
        probs=np.pad(probs, ((0, 0), (0, size - tokens))),
        query=query,
        next_token=tokens + queries + np.arange(classes),
        vocab_size=size,
    )


def training(number: int) -> tuple[ss.SequenceClasses, dict[str, Any]]:
    """A random setting of `train`."""
    rng = np.random.default_rng(1000 + number)
    options: dict[str, Any] = {
        "lr_y": float(rng.choice([0.3, 1, 3])),
        "lr_z": float(rng.choice([0.3, 1, 3])),
        "steps": int(rng.integers(5, 40)),
        "dtype": "float64",
        "seeds": [int(seed) for seed in rng.integers(0, 100, int(rng.integers(1, 4)))],
        "record_every": int(rng.integers(1, 9)),
    }
    options["batch_size"] = [1, 7, 32, 128, None][rng.integers(5)]
    options["seq_len"] = [5, 33, 128, 1500, math.inf][rng.integers(5)]
    options["optimizer"] = str(rng.choice(["sgd", "sgd", "sgd", "adam", "sign_sgd", "normalized_sgd"]))
    if options["optimizer"] == "sgd":
        options["momentum"] = float(rng.choice([0, 0.9]))
    else:
        options["lr_y"] *= 0.1
        options["lr_z"] *= 0.1
    if rng.random() < 0.4:
        options["init"] = "uniform"
    if rng.random() < 0.35:
        options["residual"] = True
    if rng.random() < 0.35:
        options["normalization"] = "layer"
    if rng.random() < 0.3:
        options |= {"heads": int(rng.integers(2, 4)), "init": "uniform"}
    if rng.random() < 0.2:
        options["decoder_gradient"] = "modified"
    if rng.random() < 0.2:
        options["num_sequences"] = int(rng.integers(5, 60))
    if rng.random() < 0.15:
        options["attention_prior"] = {"common": -1.0}
    classes = random_classes(rng)
    if rng.random() < 0.2:
        classes = ss.near_distinct()
        options.pop("num_sequences", None)
        options["seq_len"] = 17 if options["batch_size"] else math.inf
        options.pop("attention_prior", None)
        if rng.random() < 0.7:
            options["learn_position_bias"] = bool(rng.random() < 0.6)
        if rng.random() < 0.5:
            options["position_bias"] = {"alibi": 0.1}
    if rng.random() < 0.1:
        classes = ss.syn_small()
        for name in ("residual", "normalization", "heads", "decoder_gradient", "attention_prior"):
            options.pop(name, None)
        for name in ("learn_position_bias", "position_bias"):
            options.pop(name, None)
        layers = int(rng.integers(2, 4))
        options |= {"layers": layers, "init": "uniform", "batch_size": options["batch_size"] or 16}
    return classes, options


def flowing(number: int) -> tuple[ss.SequenceClasses, dict[str, Any]]:
    """A random setting of `flow`."""
    rng = np.random.default_rng(5000 + number)
    classes = random_classes(rng)
    options: dict[str, Any] = {
        "lr_y": float(rng.choice([0.1, 1, 10])),
        "lr_z": float(rng.choice([0.01, 0.1, 1])),
        "times": [1, 30, 1e3, 1e6, 1e12],
    }
    if number % 2:
        options["init"] = "uniform"
    if number % 4 == 1:
        options["residual"] = True
    if number % 4 == 2:
        options["normalization"] = "layer"
    if number % 8 == 3:
        options["decoder_gradient"] = "modified"
    if number % 8 == 5:
        options["heads"] = 2
    return classes, options


def compare(name: str, result: xr.Dataset, tolerance: float) -> None:
    recorded = RECORDED[name]
    assert recorded
    for quantity, numbers in recorded.items():
        values = np.asarray(result[quantity].values, float).reshape(-1)[-len(numbers) :]
        np.testing.assert_allclose(values, numbers, rtol=tolerance, atol=tolerance, err_msg=quantity)


@pytest.mark.parametrize("number", range(80))
def test_training(number: int) -> None:
    classes, options = training(number)
    compare(f"train {number}", ss.train(classes, **options), 1e-8)


@pytest.mark.parametrize("number", range(16))
def test_flow(number: int) -> None:
    """To a hundred times the integrator's tolerance."""
    classes, options = flowing(number)
    compare(f"flow {number}", ss.flow(classes, **options), 1e-6)
