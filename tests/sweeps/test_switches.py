"""What leads beyond the basic setting, in sweeps: as axes, with the numbers of `train`."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.sweeps.cells import cells

OPTIONS = {"lr_z": 0.5, "lr_y": 1.0, "steps": 4, "batch_size": 8, "seq_len": 16}


def test_layers_are_axes() -> None:
    classes = ss.syn_small()
    found = ss.sweep(classes, **OPTIONS, normalization=["l2", "layer"], residual=[False, True], seeds=[0, 1],
                     record=("loss", "attention"))  # fmt: skip
    assert found.sizes["run"] == 8
    assert set(found["residual"].values.tolist()) == {"True", "False"}
    run = int(np.flatnonzero((found["normalization"] == "layer") & (found["residual"] == "True"))[1])
    alone = ss.train(classes, **OPTIONS, normalization="layer", residual=True, seeds=1, record=("loss", "attention"),
                     record_every=4)  # fmt: skip
    np.testing.assert_allclose(found["loss"].values[run], alone["loss"].values[0], rtol=1e-6)
    np.testing.assert_allclose(found["attention"].values[run], alone["attention"].values[0], atol=1e-6)
    assert len(cells(found)) == 4


def test_data_and_priors_are_axes(tmp_path) -> None:
    found = ss.sweep(ss.syn_small(), **OPTIONS, num_sequences=[4, None], attention_prior=[None, {"common": -2.0}],
                     optimizer=["sgd", "normalised_sgd"], record=("loss", "fresh_loss"),
                     store=tmp_path / "s.zarr")  # fmt: skip
    assert found.sizes["run"] == 8
    assert {"num_sequences", "attention_prior", "optimizer"} <= set(found.coords)
    assert np.isfinite(found["fresh_loss"]).all()
    assert "fresh_loss" in cells(found)[0]


def test_heads_of_one_number_are_recorded_and_of_several_refused() -> None:
    found = ss.sweep(ss.syn_small(), **OPTIONS, heads=2, init="uniform", init_scale_z=[1.0, 4.0], record=("attention",))
    assert found["attention"].dims == ("run", "step", "class", "head", "token")
    with pytest.raises(ss.InputError, match="entropy cannot be recorded over different numbers of heads"):
        ss.sweep(ss.syn_small(), **OPTIONS, heads=[1, 2])
    both = ss.sweep(ss.syn_small(), **OPTIONS, heads=[1, 2], record=("loss",))
    assert both["heads"].values.tolist() == [1, 2]


def test_refusals() -> None:
    with pytest.raises(ss.InputError, match="a sweep takes names with numbers"):
        ss.sweep(ss.syn_small(), **OPTIONS, attention_prior=np.zeros(34))
    with pytest.raises(ss.InputError, match="it scales the start 'uniform' alone"):
        ss.sweep(ss.syn_small(), **OPTIONS, init_scale_z=[1.0, 2.0])
    with pytest.raises(ss.InputError, match="unknown normalization"):
        ss.sweep(ss.syn_small(), **OPTIONS, normalization=["l2", "L2"])
