"""Figure 2: its stages come from the theory and the run, and its trends can fail."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.figures import catalog


def test_stages(prepare) -> None:
    dataset = prepare("2")
    setting = {"vocab_size": 34, "num_classes": 2, "lr_y": 1.0}
    assert dataset.attrs["snap_start"] == float(ss.theory.snap_start(**setting))
    moments = dataset["moment"].values
    assert (moments[:, 0] == 0).all()
    assert (moments[:, 2] == 21).all()
    assert (moments[:, 3] == 206).all()
    assert (moments[:, 1] == dataset["speed"].rolling(step=5, center=True).mean().idxmax("step").values).all()
    probs = ss.syn_small().support_probs(0)
    assert dataset["score"].sel(stage="start").values == pytest.approx(np.tile(probs, (6, 1)))
    run = ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=206, seeds=3, record=("attention_logits",))
    last = run["attention_logits"].values[0, -1, 0, 0, 0, :20]
    assert np.array_equal(dataset["logits"].sel(seed=3, stage="end").values, last.astype(float))


def test_trends_can_fail(prepare, trends_of) -> None:
    dataset = prepare("2")
    trends = trends_of("2", dataset)
    lost, ahead = (
        "Every common token has lost in the end.",
        "The distinct token that was ahead takes over from the others.",
    )
    when, slower = "Attention moves fastest between t'₀ and t₀.", "Past t₀ attention moves ever more slowly."
    assert all(trends[statement].holds for statement in (lost, ahead, when, slower))
    assert not trends_of("2", dataset.assign(logits=-dataset["logits"]))[lost].holds
    assert not trends_of("2", dataset.assign(score=1 / dataset["score"]))[ahead].holds
    dataset["moment"].values[:, 1] += 100
    assert not trends_of("2", dataset)[when].holds
    dataset["speed"].values[:] = dataset["speed"].values[:, ::-1]
    assert not trends_of("2", dataset)[slower].holds


def test_frozen_is_measured(prepare, trends_of) -> None:
    """More attention moves from t_0 to 10 t_0 than before t_0; were it the other way the trend would hold."""
    dataset, frozen = prepare("2"), "Past t₀ the pattern is all but frozen."
    assert not trends_of("2", dataset)[frozen].holds
    assert title(dataset) == "(d) 10 $t_0$: not yet frozen\nupdate 206"
    dataset["moved"].values[:] = dataset["moved"].values[:, ::-1]
    assert trends_of("2", dataset)[frozen].holds
    assert title(dataset) == "(d) 10 $t_0$: frozen\nupdate 206"


def title(dataset: xr.Dataset) -> str:
    """The title of panel (d), which must agree with the verdict."""
    return catalog.recipe("2").draw(dataset).axes[3].get_title(loc="left")
