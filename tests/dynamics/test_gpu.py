"""The GPU path against the CPU kernel, on a machine that has one: `pytest -m gpu`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import scansnap as ss

pytestmark = pytest.mark.gpu

SETTINGS: dict[str, dict[str, Any]] = {
    "drawn on the device": {"momentum": 0.9},
    "uniform start": {"momentum": 0.9, "init": "uniform"},
    "adam": {"optimizer": "adam", "lr_y": 0.1, "lr_z": 0.1},
    "population": {"batch_size": None, "seq_len": math.inf},
    "drawn on the host, in blocks": {"seq_len": 2000},
    "drawn on the host, binomials": {"seq_len": 9000, "batch_size": 8},
    "each class once": {"batch_size": None},
    "modified": {"decoder_gradient": "modified"},
    "another layer": {"normalization": "layer", "residual": True, "heads": 2, "init": "uniform", "momentum": 0.9},
    "normalized": {"optimizer": "normalized_sgd", "lr_y": 0.1, "lr_z": 0.1},
    "fixed set": {"num_sequences": 40},
    "fixed set, whole": {"num_sequences": 40, "batch_size": None},
    "seeds that runs share": {"seeds": [3, 1, 3], "lr_y": [1.0, 0.5, 0.3], "momentum": 0.9},
    "a large batch": {"batch_size": 1500},
    "modified, heads": {"decoder_gradient": "modified", "heads": 2, "init": "uniform"},
    "two layers": {"layers": 2, "momentum": 0.9, "lr_y": 0.3},
    "three layers, random start": {"layers": 3, "init": "uniform", "nonlinearity": "relu", "lr_y": 0.3},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_devices_agree(options: dict[str, Any]) -> None:
    """Equal seeds draw equal sequences, so float64 runs differ by rounding alone."""
    arguments = {"lr_y": 1.0, "lr_z": 0.5, "steps": 30, "record_every": 10, "dtype": "float64", "seeds": 3, **options}
    cpu, gpu = (ss.train(ss.syn_medium(num_query=3), device=device, **arguments) for device in ("cpu", "cuda"))
    for name in cpu.data_vars:
        assert np.allclose(cpu[name], gpu[name], rtol=1e-10, atol=1e-12), name


@pytest.mark.parametrize("options", [{}, {"learn_position_bias": True, "momentum": 0.9}])
def test_devices_agree_on_positions(options: dict[str, Any]) -> None:
    classes = ss.near_distinct()
    arguments = {
        "lr_y": 1.0,
        "lr_z": 0.5,
        "steps": 30,
        "seq_len": 1 + int(classes.sizes.sum()),
        "dtype": "float64",
        "seeds": 3,
        **options,
    }
    cpu, gpu = (ss.train(classes, device=device, **arguments) for device in ("cpu", "cuda"))
    for name in cpu.data_vars:
        assert np.allclose(cpu[name], gpu[name], rtol=1e-10, atol=1e-12), name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"residual": True},
        {"heads": 2},
        {"num_sequences": 64},
        {"optimizer": "adam"},
        {"decoder_gradient": "modified"},
    ],
)
def test_devices_agree_in_float32_and_repeat(options: dict[str, Any]) -> None:
    """After ten steps in float32, runs differ by rounding and its growth; a second call gives the same bits."""
    arguments = {"lr_y": 0.3, "lr_z": 0.3, "steps": 10, "init": "uniform", "seeds": 3, **options}
    cpu, gpu, again = (
        ss.train(ss.syn_medium(num_query=10), device=device, **arguments) for device in ("cpu", "cuda", "cuda")
    )
    for name in cpu.data_vars:
        assert np.allclose(cpu[name], gpu[name], rtol=1e-3, atol=1e-4), name
        assert np.array_equal(gpu[name], again[name], equal_nan=True), name


def test_a_diverging_run_is_marked_there_too() -> None:
    ds = ss.train(ss.syn_small(), lr_y=[1.0, 1e39], lr_z=1.0, steps=10, device="cuda")
    assert ds["status"].values.tolist() == ["ok", "diverged"]
    assert np.isfinite(ds["loss"].values[0]).all()
