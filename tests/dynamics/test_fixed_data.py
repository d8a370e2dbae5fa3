"""Training on a fixed set, testing on fresh sequences, and priors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.data.sampling import choose
from scansnap.data.source import NUM_FRESH

pytestmark = pytest.mark.rounding

OPTIONS: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 20, "batch_size": 16, "seq_len": 9, "dtype": "float64"}


def short() -> ss.SequenceClasses:
    return ss.synthetic(num_query=1, next_per_query=2, num_common=6, num_distinct=3)


def test_the_set_is_what_sample_counts_gives() -> None:
    """Tokens that the set does not hold have a decoder row that never moves."""
    classes = short()
    result = ss.train(classes, **OPTIONS, num_sequences=3, seeds=7, record=("decoder", "attention_logits")).isel(
        run=0, step=-1
    )
    counts, _ = ss.sample_counts(classes, num=3, seq_len=9, seed=7)
    seen = counts.sum(0)[classes.contextual_tokens] > 0
    assert seen.any()
    assert not seen.all()
    moved = np.abs(result["decoder"].values[0, 0]).max(-1) > 0
    assert np.array_equal(moved, seen)


def test_the_whole_set_at_every_update_is_gradient_descent_on_it() -> None:
    """Without a batch size the loss of the set falls at every update, and a batch as large as the set is not it."""
    classes = short()
    whole = ss.train(classes, **{**OPTIONS, "batch_size": None}, num_sequences=12, seeds=1)["loss"].values[0]
    assert (np.diff(whole) < 0).all()
    selected = ss.train(classes, **{**OPTIONS, "batch_size": 12}, num_sequences=12, seeds=1)["loss"].values[0]
    assert np.abs(selected - whole).max() > 1e-3


def test_choices_are_uniform_and_a_run_s_own() -> None:
    """30,000 choices among 10: chi-square with 9 degrees of freedom, false alarms 1 in 10^6 (47)."""
    out = np.empty((3, 10_000), np.int64)
    for row, seed in enumerate((1, 2, 1)):
        choose(np.uint64(seed), 5, 10, out[row : row + 1])
    assert np.array_equal(out[0], out[2])
    assert not np.array_equal(out[0], out[1])
    counts = np.bincount(out[:2].ravel(), minlength=10)
    assert ((counts - 2000) ** 2 / 2000).sum() < 47


def test_fresh_data_is_fresh() -> None:
    """Trained on four sequences a run is worse on fresh ones; on new data all the time it is not (1,024 sequences)."""
    few = ss.train(short(), **{**OPTIONS, "steps": 200}, num_sequences=4, record=("loss", "fresh_loss"))
    many = ss.train(short(), **{**OPTIONS, "steps": 200, "batch_size": 512}, record=("loss", "fresh_loss"))
    assert few["fresh_loss"].values[0, -1] > 2 * few["loss"].values[0, -1]
    assert many["fresh_loss"].values[0, -1] == pytest.approx(many["loss"].values[0, -1], rel=0.2)
    assert few["fresh_loss"].values[0, 0] == pytest.approx(math.log(short().vocab_size), rel=1e-12)
    assert NUM_FRESH == 1024


@pytest.mark.parametrize(
    "option",
    [{"optimizer": "adam"}, {"heads": 2, "residual": True, "normalization": "layer", "init": "uniform"}, "positions"],
)
def test_compiled_code_and_tensors_measure_the_same_on_fresh_data(option: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With float64 and after some steps of two runs with different seeds."""
    classes = ss.near_distinct() if option == "positions" else short()
    own = {"seq_len": 17, "learn_position_bias": True} if option == "positions" else option
    options = {**OPTIONS, **own, "steps": 7, "seeds": (3, 4), "record": ("loss", "fresh_loss", "fresh_accuracy")}
    compiled = ss.train(classes, **options)
    monkeypatch.setattr("scansnap.dynamics.kernel_engine.KernelEngine.serves", staticmethod(lambda task: False))
    tensors = ss.train(classes, **options)
    xr.testing.assert_allclose(compiled, tensors, rtol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "sign_sgd", "normalized_sgd"])
def test_a_prior_is_a_start(optimizer: str) -> None:
    """z + z_0 from Z(0) = 0 is z from Z(0) = z_0, whatever the rule; recorded logits are without the prior."""
    classes = short()
    prior = np.random.default_rng(0).normal(size=classes.vocab_size)
    options = {**OPTIONS, "optimizer": optimizer, "lr_y": 0.1, "lr_z": 0.1}
    zeros = np.zeros((classes.vocab_size, classes.vocab_size))
    with_prior = ss.train(classes, **options, attention_prior=prior)
    started = ss.train(classes, **options, init=(zeros, np.tile(prior, (classes.vocab_size, 1))))
    np.testing.assert_allclose(with_prior["attention"], started["attention"], atol=1e-12)
    shift = (started["attention_logits"] - with_prior["attention_logits"]).isel(run=0, step=-1)
    np.testing.assert_allclose(shift.values[0, 0, 0], prior[classes.contextual_tokens], atol=1e-12)
    assert np.abs(with_prior["attention_logits"].isel(step=0)).max() < 1e-15


def test_priors_name_tokens_and_kinds() -> None:
    classes = ss.SequenceClasses(
        probs=[[0.5, 0.5, 0, 0, 0], [0.4, 0, 0.6, 0, 0]],
        query=[3, 3],
        next_token=[2, 4],
        vocab_size=5,
        token_names=["the", "cat", "dog", "sat", "ran"],
    )
    single = ss.train(classes, lr_y=0, lr_z=0, steps=0, attention_prior={"the": 1.0, "common": -2.0, 2: 0.5})
    two = ss.train(classes, lr_y=0, lr_z=0, steps=0, attention_prior=[1.0, 0, 0.5, 9.0, 9.0])
    np.testing.assert_allclose(single["attention"], two["attention"])
    expected = np.array([0.5 * math.e, 0.5]) / (0.5 * math.e + 0.5)
    np.testing.assert_allclose(single["attention"].values[0, 0, 0, 0, 0, :2], expected, rtol=1e-6)
    assert '"attention_prior": {"2": 0.5, "common": -2.0, "the": 1.0}' in single.attrs["options"]
