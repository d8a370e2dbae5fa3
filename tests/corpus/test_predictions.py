"""Predictions and their scores."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from scansnap.runtime.errors import InputError


def test_tokens_are_ranked_by_gain(corpus, tmp_path) -> None:
    prediction = ss.predict(corpus, queries=3, control=True, store=tmp_path / "prediction.zarr")
    assert prediction["query_word"].values.tolist() == [".", "the", "and"]
    gain, ranked = prediction["gain"].sel(query=1), prediction["ranked"].sel(query=1)
    order = ranked.values[ranked.values >= 0]
    assert (np.diff(gain.sel(token=order)) <= 0).all()
    assert len(order) == int((prediction["count"].sel(query=1) >= 10).sum())
    assert prediction["ranked_word"].values[1, 0] == corpus.words([order[0]])[0]
    assert not np.allclose(prediction["control"], prediction["gain"], equal_nan=True)
    xr.testing.assert_equal(ss.load(tmp_path / "prediction.zarr"), prediction)


def test_a_text_and_its_counts_say_much_the_same(corpus, counts) -> None:
    """Counts do not say which tokens come together: rank correlations of 0.7, 0.7 and 0.5 at these three queries."""
    predictions = [ss.predict(source, queries=("the", "and", "a")) for source in (corpus, counts)]
    score = ss.score_prediction(predictions[0], predictions[1]["gain"].sel(token=predictions[0]["token"]))
    assert (score["rank"].sel(explanation="prediction") > 0.3).all()


def test_methods_of_ones_own_are_taken(corpus) -> None:
    @dataclasses.dataclass(frozen=True)
    class Rare:
        power: float = 1.0

        def gains(self, reading: ss.Reading) -> torch.Tensor:
            return -(reading.next_shares**self.power).expand(len(reading.queries), -1)

    prediction = ss.predict(corpus, queries=2, method=Rare(2.0))
    assert "Rare(power=2.0)" in prediction.attrs["options"]
    ranked = np.isfinite(prediction["gain"].values[0])
    np.testing.assert_allclose(prediction["gain"].values[0, ranked], -(prediction["frequency"].values[ranked] ** 2))
    with pytest.raises(InputError, match="choose one of settled, population"):
        ss.predict(corpus, method="oracle")


def test_what_cannot_be_predicted_is_refused(corpus, counts) -> None:
    with pytest.raises(InputError, match="does not occur"):
        ss.predict(corpus, queries=("xylophone",))
    with pytest.raises(InputError, match="counts cannot be shuffled"):
        ss.predict(counts, control=True)
    with pytest.raises(InputError, match="read_corpus"):
        ss.predict(3)  # type: ignore[arg-type]


def small_prediction(gain: np.ndarray) -> xr.Dataset:
    size = gain.shape[1]
    rng = np.random.default_rng(5)
    return xr.Dataset(
        {
            "gain": (("query", "token"), gain),
            "count": (("query", "token"), rng.integers(1, 100, gain.shape)),
            "frequency": ("token", rng.random(size)),
        },
        coords={"query": range(len(gain)), "query_word": ("query", [str(i) for i in range(len(gain))])},
    )


def test_scores_of_a_perfect_and_of_a_random_prediction() -> None:
    """40 queries of 100 tokens; each of the three means is within five standard errors, a chance of 2e-6."""
    rng = np.random.default_rng(0)
    gain = rng.normal(size=(40, 100))
    prediction = small_prediction(gain)
    perfect = ss.score_prediction(prediction, np.exp(gain)).sel(explanation="prediction")
    for name in ("rank", "partial", "winners"):
        np.testing.assert_allclose(perfect[name], 1.0)
    np.testing.assert_allclose(perfect["calibration"][0], (np.arange(10) + 0.5) / 10)
    random = ss.score_prediction(prediction, rng.normal(size=(3, 40, 100)))
    assert random.sizes["run"] == 3
    for name in ("rank", "partial", "winners"):
        values = random[name].sel(explanation="prediction")
        assert abs(float(values.mean())) < 5 * float(random[name].std()) / math.sqrt(values.size)
    reversed_ = ss.score_prediction(prediction, -gain).sel(explanation="prediction")
    np.testing.assert_allclose(reversed_["rank"], -1.0)


def test_partial_takes_frequency_out() -> None:
    """If both sides are frequency and noise of their own, only the plain correlation is positive."""
    rng = np.random.default_rng(1)
    prediction = small_prediction(np.zeros((30, 400)))
    frequency = prediction["frequency"].values
    prediction["gain"] = (("query", "token"), frequency + 0.3 * rng.normal(size=(30, 400)))
    score = ss.score_prediction(prediction, frequency + 0.3 * rng.normal(size=(30, 400)))
    said = score.sel(explanation="prediction")
    assert (said["rank"] > 0.3).all()
    assert abs(float(said["partial"].mean())) < 5 / math.sqrt(30 * 400)
    assert float(score["winners"].sel(explanation="pmi").mean()) < 0.2


def test_a_query_with_too_few_tokens_is_left_out() -> None:
    gain = np.random.default_rng(2).normal(size=(2, 30))
    gain[1, 8:] = np.nan
    score = ss.score_prediction(small_prediction(gain), np.ones((2, 30)) * np.arange(30))
    assert np.isnan(score["rank"].values[0, 1]).all()
    assert np.isfinite(score["rank"].values[0, 0]).all()
    with pytest.raises(InputError, match="one number for each query and token"):
        ss.score_prediction(small_prediction(gain), np.ones((2, 29)))


def test_the_prediction_is_right_about_a_short_training(corpus) -> None:
    """(Y, Z) for two passes: the prediction beats frequency, co-occurrence and PMI, and its own control."""
    prediction = ss.predict(corpus, queries=10, control=True, least=50)
    training = {"model": "yz", "steps": 24, "queries": 10, "progress": False}
    runs = [ss.train_text(corpus, lr_z=30.0 / ratio, **training) for ratio in (1.0, 10.0, 100.0)]
    gains = [run["attention_logits"].isel(run=0, layer=0, head=0) for run in runs]
    score = ss.score_prediction(prediction, np.array([z.sel(token=prediction["token"].values) for z in gains]))
    means = score["rank"].mean("query").transpose("explanation", "run")
    assert (means.sel(explanation="prediction") > 0.4).all()
    assert (means.sel(explanation="prediction") > means.drop_sel(explanation="prediction")).all()


def test_population_says_how_large_logits_become(corpus) -> None:
    """A short training: a correlation of 0.97 with what was learned and 1.15 times its size, and the better ranks."""
    training = {"lr_z": 3.0, "steps": 24}
    run = ss.train_text(corpus, model="yz", queries=10, progress=False, **training)
    ranks = {}
    for method in ("settled", "population"):
        prediction = ss.predict(corpus, queries=10, least=50, method=method, **training)
        gains = run["attention_logits"].isel(run=0, layer=0, head=0).sel(token=prediction["token"].values).values
        ranks[method] = float(ss.score_prediction(prediction, gains)["rank"].sel(explanation="prediction").mean())
    ranked = np.isfinite(prediction["gain"].values)
    said, learned = prediction["gain"].values[ranked], gains[ranked]
    assert np.corrcoef(said, learned)[0, 1] > 0.95
    assert said.std() / learned.std() == pytest.approx(1.15, abs=0.1)
    assert ranks["population"] > ranks["settled"] + 0.2
