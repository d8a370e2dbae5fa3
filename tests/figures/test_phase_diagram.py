"""The phase diagram: its trends, and maps over other axes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap import theory
from scansnap.figures.phase_diagram import default_color, map_of

RATES = [0.1, 1.0, 10.0]


@pytest.fixture(scope="module")
def flows():
    return ss.sweep(
        "syn-small", lr_y=RATES, lr_z=RATES, times=np.geomspace(0.1, 1e6, 40), record=("attention", "entropy", "loss")
    )


def test_a_map_holds_the_measures_of_the_runs(flows) -> None:
    snap = map_of(flows, "lr_y", "lr_z", "snap_time")
    one = flows.sel(lr_y=10.0, lr_z=0.1).isel(seed=0)
    assert snap.dims == ("lr_z", "lr_y")
    assert float(snap.sel(lr_y=10.0, lr_z=0.1)) == float(ss.measure.snaps(one)["snap_step"].mean())
    entropy = map_of(flows, "lr_z", "lr_y", "entropy")
    assert float(entropy.sel(lr_y=10.0, lr_z=0.1)) == pytest.approx(float(one["entropy"].isel(time=-1).mean()))
    share = map_of(flows.sel(lr_z=[1.0]), "time", "lr_y", "winner_share")
    assert share.shape == (3, 40)
    assert snap.attrs == {"vocab_size": 34, "num_classes": 2}


def test_a_map_without_numbers_says_why(flows) -> None:
    with pytest.raises(ss.InputError, match="there is no snap_time anywhere in this result: no run has snapped"):
        ss.phase_diagram(flows.isel(time=slice(3)))
    nothing = flows.assign(entropy=flows["entropy"] * np.nan)
    with pytest.raises(ss.InputError, match="no distinct tokens, so take favored_entropy"):
        ss.phase_diagram(nothing, color="entropy")
    drawn = map_of(flows, "lr_y", "lr_z", "favored_entropy")
    np.testing.assert_allclose(drawn, map_of(flows, "lr_y", "lr_z", "entropy"), rtol=1e-12)


def test_cells_stand_around_their_rates_and_colors_do_not_exaggerate(flows) -> None:
    level = flows.assign(entropy=xr.full_like(flows["entropy"], 1.41) + 0.001 * flows["lr_y"] / 10)
    figure = ss.phase_diagram(level.isel(lr_y=[2, 0, 1]), color="entropy")  # whatever their order
    axes = figure.axes[0]
    assert axes.get_xticks().tolist() == RATES
    edges = axes.collections[0].get_coordinates()[0, :, 0]
    np.testing.assert_allclose(edges, np.geomspace(0.1 / np.sqrt(10), 10 * np.sqrt(10), 4))
    assert np.asarray(axes.collections[0].get_array()).reshape(3, 3)[0] == pytest.approx([1.41001, 1.4101, 1.411])
    low, high = axes.collections[0].get_clim()
    assert high - low == pytest.approx(0.1411)


def test_a_map_takes_the_first_default_color_that_it_has(flows) -> None:
    colored = partial(default_color, x="lr_y", y="lr_z")
    assert colored(flows) == "snap_time"
    assert colored(flows.isel(time=slice(3))) == "entropy"  # none has snapped
    assert colored(flows.isel(time=slice(3)).assign(entropy=flows["entropy"] * np.nan)) == "favored_entropy"
    assert colored(flows.drop_vars(["attention", "entropy"])) == "loss"
    with pytest.raises(ss.InputError, match="no numbers to map"):
        colored(flows.drop_vars(["attention", "entropy", "loss"]))
    named = flows.assign_coords(lr_y=["slow", "medium", "fast"])
    with pytest.raises(ss.InputError, match="the axis lr_y has names and no numbers"):
        ss.phase_diagram(named, color="loss")


def test_theorem_4_is_drawn_where_it_is_a_line(flows) -> None:
    axes = ss.phase_diagram(flows).axes[0]
    unit = float(theory.snap_start(vocab_size=34, num_classes=2, lr_y=1.0))
    places = [line.get_xdata()[0] for line in axes.lines]
    assert places
    assert np.allclose(np.log10(unit / np.array(places)) % 1, [0] * len(places), atol=1e-9)
    axes = ss.phase_diagram(flows.sel(lr_z=[1.0]), x="time", y="lr_y", color="winner_share").axes[0]
    scan, snap = axes.lines
    assert np.allclose(scan.get_xdata(), theory.scan_end(vocab_size=34, num_classes=2, lr_y=np.array(RATES)))
    assert np.allclose(snap.get_xdata(), theory.snap_start(vocab_size=34, num_classes=2, lr_y=np.array(RATES)))
    assert not ss.phase_diagram(flows, color="loss").axes[0].lines


def test_training_has_maps_too() -> None:
    grid = ss.sweep("syn-small", lr_z=[0.5, 1.0], lr_y=1.0, momentum=[0.0, 0.5, 0.9], steps=20, seeds=[0, 1])
    axes = ss.phase_diagram(grid, x="momentum", y="lr_z", color="entropy").axes[0]
    assert axes.get_xlabel() == "momentum"
    assert axes.get_xscale() == "linear"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"x": "momentum"}, "unknown axis of the map 'momentum'"),
        ({"x": "lr_z"}, "x and y are both lr_z"),
        ({"x": "time"}, "snap_time is one number for each run"),
        ({"color": "los"}, "did you mean 'loss'"),
        ({"x": "time", "color": "loss"}, r"varies in lr_y too: select one value of it, as result.sel\(lr_y=...\)"),
    ],
)
def test_refusals(flows, words: dict, message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.phase_diagram(flows, **words)
