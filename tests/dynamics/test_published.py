"""The published runs: Figure 4's loss and Figure 6's entropies, from the same settings.

Slow: run by `make reproduce`.
"""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.figures.fig_4 import surprise
from scansnap.figures.recipe import read_published

pytestmark = pytest.mark.slow


def loss_ensemble(num: int, **change) -> np.ndarray:
    options = {"lr_y": 1.0, "lr_z": 1.0, "steps": 98, "momentum": 0.9, "record_every": 2, "record": ("loss",)}
    return np.log(ss.train(ss.syn_small(), **{**options, **change}, seeds=range(num))["loss"].values)


def test_figure_4_loss_is_one_of_ours() -> None:
    """The published curve among 1,000 of ours, level 1%; curves of slightly other settings are told apart."""
    curve = np.log([row["loss"] for row in read_published("figure_4_loss")])
    logs = loss_ensemble(1000)
    assert curve[0] == pytest.approx(np.log(np.log(34)), abs=1e-6)
    assert surprise(logs, curve) > 0.01
    for change in ({"momentum": 0.85}, {"lr_y": 1.1}, {"seq_len": 64}, {"batch_size": 32}):
        other = loss_ensemble(200, **change)
        assert np.median([surprise(logs, single) for single in other]) < 0.05, change


def test_figure_6_entropies() -> None:
    """64 published cells of 10 seeds against 100 of ours: mean |z| at most 1.2, none above 4."""
    scores = []
    for num_query in (1, 3, 5, 10):
        cells = [row for row in read_published("figure_6_entropy") if row["num_query"] == num_query]
        rates = np.array([(row["lr_z"] * row["lr_y_over_lr_z"], row["lr_z"]) for row in cells])
        lr_y, lr_z = np.repeat(rates, 100, axis=0).T
        ds = ss.train(
            ss.syn_medium(num_query=num_query),
            lr_y=lr_y,
            lr_z=lr_z,
            seeds=list(range(100)) * len(cells),
            steps=100,
            momentum=0.9,
            init="uniform",
            record_every=100,
            record=("entropy",),
        )
        result = ds["entropy"].isel(step=-1).mean("class").values.astype(float).reshape(len(cells), 100)
        for row, values in zip(cells, result, strict=True):
            error = np.sqrt(row["entropy_std"] ** 2 / row["seeds"] + values.var(ddof=1) / 100)
            scores.append((values.mean() - row["entropy_mean"]) / error)
    size = np.abs(scores)
    assert size.mean() <= 1.2
    assert size.max() <= 4
