"""The runs of Figures 6, 11 and 12."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from scansnap.dynamics.published import SYN_MEDIUM
from scansnap.figures import syn_medium_runs


def test_a_cell_is_a_run_of_train(runs) -> None:
    alone = ss.train(ss.syn_medium(num_query=5), replace(SYN_MEDIUM, lr_y=10.0, lr_z=2.0, seeds=4)).isel(step=-1)
    cell = runs.sel(num_query=5, lr_z=2.0, lr_y_over_lr_z=5.0, seed=4)
    assert float(cell["entropy"]) == float(alone["entropy"].mean())
    assert np.array_equal(cell["attention"].values[7], alone["attention"].values[0, 0, 0, 7, 80:90])
    assert np.isnan(cell["attention"].values[10:]).all()  # five queries have ten classes


def test_softmax_over_the_vocabulary() -> None:
    """Against the softmax of whole rows of Z at a random start, of which only 90 of 125 tokens are given."""
    rng = np.random.default_rng(0)
    whole = rng.uniform(-1, 1, (200, 125)) / np.sqrt(125)
    expected = np.exp(whole)[:, :90] / np.exp(whole).sum(-1, keepdims=True)
    assert syn_medium_runs.query_softmax(whole[:, :90], 125) == pytest.approx(expected, rel=0.02)
    assert syn_medium_runs.query_softmax(np.zeros((1, 90)), 125) == pytest.approx(1 / 125, rel=1e-3)


def test_cells_have_names() -> None:
    assert syn_medium_runs.cell(1, lr_z=0.5) == "1 query, η_Z = 0.5"
    assert syn_medium_runs.cell(3.0, lr_y_over_lr_z=2.0) == "3 queries, η_Y/η_Z = 2"
