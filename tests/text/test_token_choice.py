"""Rank correlations of attention with what the text says, on texts whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import scansnap as ss
from scansnap.base.errors import InputError
from scansnap.text.token_choice import count_tokens, rank_correlations


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory):
    """After `says` comes what the word two before it decides (a0 to a9: distinct); b0 to b9 stand anywhere."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(4000):
        a, b = int(rng.integers(10)), int(rng.integers(10))
        lines.append(f"a{a} b{b} says n{a} .")
    folder: Path = tmp_path_factory.mktemp("text")
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    (folder / "valid.txt").write_text("\n".join(lines[:20]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(tmp_path_factory.mktemp("cache")))
        return ss.read_corpus(folder)


@pytest.fixture(scope="module")
def counts(corpus):
    query = int(corpus.tokenizer.encode("says")[0])
    return count_tokens(corpus, [query], window=3, tokens=corpus.vocab_size)


def test_distinct_words_are_distinct_and_common_ones_are_not(corpus, counts) -> None:
    one = counts.isel(query=0)
    words = np.array(corpus.words(np.arange(corpus.vocab_size)))
    distinct = one["distinctness"].values[[w.startswith("a") for w in words]]
    common = one["distinctness"].values[[w.startswith("b") for w in words]]
    # each a says all about the next of ten words: ln 10 = 2.30 nats, give or take 5%, as it was drawn 400 +- 19 times
    np.testing.assert_allclose(distinct, np.log(10), atol=0.2)
    # 400 counts over ten next words: 9/800 = 0.011 nats by chance, as the shuffles have; sd 0.005, twenty words
    np.testing.assert_allclose(common, 0.0, atol=0.03)
    np.testing.assert_allclose(one["control"].values[[w[0] in "ab" for w in words]], 0.0, atol=0.03)
    assert np.isnan(one["distinctness"].values[[w.startswith("n") for w in words]]).all()  # never before `says`
    shares = one["cooccurrence"].values[[w[0] in "ab" for w in words]]
    assert shares.sum() == pytest.approx(1.0)


def test_correlations_say_which_explanation_is_at_work() -> None:
    rng = np.random.default_rng(1)
    import xarray as xr

    frequency = rng.random((1, 2000))
    cooccurrence = frequency + 0.3 * rng.random((1, 2000))
    distinctness, control = rng.random((2, 1, 2000)) - 0.5 * frequency
    data = {"distinctness": distinctness, "control": control, "cooccurrence": cooccurrence, "frequency": frequency}
    counts = xr.Dataset({k: (("query", "token"), v) for k, v in data.items()}, coords={"query": [0]})
    found = rank_correlations(counts, distinctness).isel(query=0)
    assert float(found["partial"].sel(explanation="distinctness")) == pytest.approx(1.0, abs=1e-6)
    # everything else explains nothing once distinctness is taken out; n = 2000, so |r| < 0.09 but once in 10^4
    found = rank_correlations(counts, distinctness + 0.5 * rng.random((1, 2000))).isel(query=0)
    assert float(found["partial"].sel(explanation="distinctness")) > 0.5
    assert abs(float(found["partial"].sel(explanation="cooccurrence"))) < 0.09
    plain = float(found["plain"].sel(explanation="frequency"))
    assert plain == pytest.approx(stats.spearmanr((distinctness)[0], frequency[0])[0], abs=0.1)
    assert plain < -0.2  # by way of distinctness alone
    # logits that follow frequency are not put down to distinctness or to its control, though both go against it
    found = rank_correlations(counts, frequency + 0.01 * rng.random((1, 2000))).isel(query=0)
    assert float(found["plain"].sel(explanation="distinctness")) < -0.2
    for name in ("distinctness", "control"):
        assert abs(float(found["partial"].sel(explanation=name))) < 0.09


def test_few_tokens_or_other_shapes(counts) -> None:
    with pytest.raises(InputError, match="give one number for each query and token"):
        rank_correlations(counts, np.zeros((2, 3)))
    thin = counts.where(counts["token"] < 5)
    found = rank_correlations(thin, np.random.default_rng(0).random(counts["distinctness"].shape))
    assert np.isnan(found["partial"].values).all()
