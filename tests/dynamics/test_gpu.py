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


def test_a_diverging_run_is_marked_there_too() -> None:
    ds = ss.train(ss.syn_small(), lr_y=[1.0, 1e39], lr_z=1.0, steps=10, device="cuda")
    assert ds["status"].values.tolist() == ["ok", "diverged"]
    assert np.isfinite(ds["loss"].values[0]).all()
