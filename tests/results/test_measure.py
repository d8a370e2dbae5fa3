"""Metrics of attention, by hand and by property."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import scansnap as ss
from scansnap.results.quantities import entropy_of

pytestmark = pytest.mark.rounding


def test_entropy_by_hand() -> None:
    assert entropy_of([2.0, 2.0, 0.0]) == pytest.approx(np.log(2))
    assert entropy_of([0.0, 5.0]) == 0
    assert np.isnan(entropy_of([0.0, 0.0]))


def result(*attention: list[float] | np.ndarray, steps: list[int] | None = None) -> xr.Dataset:
    """A result with these rows of attention."""
    return xr.Dataset({"attention": (("step", "token"), np.array(attention))}, {"step": steps or range(len(attention))})


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=20))
def test_bounds(weights: list[float]) -> None:
    attention = np.array(weights) / np.sum(weights)
    size, shown = len(attention), result(attention)
    assert 0 <= entropy_of(attention) <= np.log(size) + 1e-12
    assert -1e-12 <= ss.measure.sparsity(shown) <= 1 - 1 / size + 1e-12
    masses = [ss.measure.top_k_mass(shown, k).item() for k in range(1, size + 1)]
    assert masses == sorted(masses)
    assert masses[0] == pytest.approx(attention.max())
    assert masses[-1] == pytest.approx(1)


def test_by_hand() -> None:
    assert ss.measure.sparsity(result(np.full(8, 1 / 8), np.eye(8)[0])).values == pytest.approx([0, 7 / 8])
    moved = ss.measure.rate_of_change(result([1.0, 0.0], [0.5, 0.5], [0.5, 0.5], steps=[0, 2, 3]))
    np.testing.assert_array_equal(moved, [np.nan, 0.25, 0.0])


def test_a_rate_of_change_needs_increasing_steps_and_keeps_coordinates() -> None:
    rows = [[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]
    labeled = result(*rows).assign_coords(label=("step", ["a", "b", "c"]))
    assert ss.measure.rate_of_change(labeled)["label"].values.tolist() == ["a", "b", "c"]
    for steps in ([0, 2, 2], [3, 2, 1]):
        with pytest.raises(ss.InputError, match="the values along 'step' do not increase"):
            ss.measure.rate_of_change(result(*rows, steps=steps))


def test_labeled_metrics() -> None:
    ds = ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=20, momentum=0.9, record_every=5, seeds=[0, 1])
    assert np.allclose(ss.measure.distinct_entropy(ds), ds["entropy"], atol=1e-6)
    assert ss.measure.top_k_mass(ds, 3).dims == ("run", "step", "layer", "head", "class")
    assert (ss.measure.sparsity(ds).isel(step=-1) > ss.measure.sparsity(ds).isel(step=0)).all()
    rate = ss.measure.rate_of_change(ds)
    assert rate.dims == ("run", "step", "layer", "head", "class")
    moved = np.abs(ds["attention"].isel(step=2) - ds["attention"].isel(step=1)).sum("token") / 2 / 5
    assert np.allclose(rate.isel(step=2), moved)
    assert rate.attrs["units"] == "per step"


def test_labeled_refusals() -> None:
    ds = ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=2, record=("loss",))
    with pytest.raises(ss.InputError, match="did not record 'attention'"):
        ss.measure.sparsity(ds)
    single = ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=0)
    with pytest.raises(ss.InputError, match="needs at least two"):
        ss.measure.rate_of_change(single)
    with pytest.raises(ss.InputError, match="k is 99"):
        ss.measure.top_k_mass(single, 99)
    with pytest.raises(ss.InputError, match="neither a 'step' nor a 'time'"):
        ss.measure.rate_of_change(single.isel(step=0))
