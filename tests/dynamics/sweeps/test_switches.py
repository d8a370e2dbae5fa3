"""What leads beyond the basic setting, in sweeps: as axes, with the numbers of `train`."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.dynamics.sweeps.cells import cells

OPTIONS = {"lr_z": 0.5, "lr_y": 1.0, "steps": 4, "batch_size": 8, "seq_len": 16}


def test_layers_are_axes() -> None:
    classes = ss.syn_small()
    result = ss.sweep(
        classes,
        **OPTIONS,
        normalization=["l2", "layer"],
        residual=[False, True],
        seeds=[0, 1],
        record=("loss", "attention"),
    )
    assert result["loss"].dims == ("normalization", "residual", "lr_z", "lr_y", "seed", "step")
    assert result["status"].size == 8
    assert result["residual"].values.tolist() == [False, True]
    single = result.sel(normalization="layer", residual=True, lr_z=0.5, lr_y=1.0, seed=1)
    alone = ss.train(
        classes, **OPTIONS, normalization="layer", residual=True, seeds=1, record=("loss", "attention"), record_every=4
    )
    np.testing.assert_allclose(single["loss"].values, alone["loss"].values[0], rtol=1e-6)
    np.testing.assert_allclose(single["attention"].values, alone["attention"].values[0], atol=1e-6)
    assert len(cells(result)) == 4


def test_data_and_priors_are_axes(tmp_path) -> None:
    result = ss.sweep(
        ss.syn_small(),
        **OPTIONS,
        num_sequences=[4, None],
        attention_prior=[None, {"common": -2.0}],
        optimizer=["sgd", "normalized_sgd"],
        record=("loss", "fresh_loss"),
        store=tmp_path / "s.zarr",
    )
    assert result["loss"].dims[:3] == ("num_sequences", "optimizer", "attention_prior")
    assert result["status"].size == 8
    assert result["num_sequences"].values.tolist() == [4, None]
    assert result["attention_prior"].values.tolist() == [None, '{"common": -2.0}']
    assert result["optimizer"].values.tolist() == ["sgd", "normalized_sgd"]
    assert np.isfinite(result["loss"].sel(num_sequences=None, attention_prior=None)).all()
    assert np.isfinite(result["fresh_loss"]).all()
    assert "fresh_loss" in cells(result)[0]


def test_a_prior_of_numbers_is_one_value() -> None:
    prior = np.linspace(-1, 1, 34)
    result = ss.sweep(ss.syn_small(), **OPTIONS, attention_prior=prior)
    assert result["loss"].dims == ("lr_z", "lr_y", "seed", "step")
    alone = ss.train(ss.syn_small(), **OPTIONS, attention_prior=prior, record_every=None)
    np.testing.assert_array_equal(result["loss"].values[0, 0], alone["loss"])
    assert np.abs(alone["loss"] - ss.train(ss.syn_small(), **OPTIONS, record_every=None)["loss"]).max() > 1e-4


def test_heads_of_one_number_are_recorded_and_of_several_refused() -> None:
    result = ss.sweep(
        ss.syn_small(), **OPTIONS, heads=2, init="uniform", init_scale_z=[1.0, 4.0], record=("attention",)
    )
    assert result["attention"].dims == (
        "init_scale_z",
        "lr_z",
        "lr_y",
        "seed",
        "step",
        "layer",
        "head",
        "class",
        "token",
    )
    with pytest.raises(ss.InputError, match="entropy cannot be recorded over different numbers of heads"):
        ss.sweep(ss.syn_small(), **OPTIONS, heads=[1, 2])
    both = ss.sweep(ss.syn_small(), **OPTIONS, heads=[1, 2], record=("loss",))
    assert both["heads"].values.tolist() == [1, 2]


def test_refusals() -> None:
    with pytest.raises(ss.InputError, match="attention_prior has 3 numbers for 34 tokens: give one number for each"):
        ss.sweep(ss.syn_small(), **OPTIONS, attention_prior=np.zeros(3))
    with pytest.raises(ss.InputError, match="it scales only the start 'uniform'"):
        ss.sweep(ss.syn_small(), **OPTIONS, init_scale_z=[1.0, 2.0])
    with pytest.raises(ss.InputError, match="unknown normalization"):
        ss.sweep(ss.syn_small(), **OPTIONS, normalization=["l2", "L2"])
