"""Rank correlations of attention with counts in the text, on texts whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import scansnap as ss
from scansnap.runtime.errors import InputError
from scansnap.text.token_choice import count_tokens, rank_correlations


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory):
    """The word two before `says` (a0 to a9: distinct) decides the word after it; b0 to b9 are random."""
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
    of_query = counts.isel(query=0)
    words = np.array(corpus.words(np.arange(corpus.vocab_size)))
    distinct = of_query["distinctness"].values[[w.startswith("a") for w in words]]
    common = of_query["distinctness"].values[[w.startswith("b") for w in words]]
    # each a determines which of ten words is next: ln 10 = 2.30 nats, within 5%, since it was drawn 400 +- 19 times
    np.testing.assert_allclose(distinct, np.log(10), atol=0.2)
    # 400 counts over ten next words: 9/800 = 0.011 nats by chance, like the shuffles; sd 0.005, twenty words
    np.testing.assert_allclose(common, 0.0, atol=0.03)
    np.testing.assert_allclose(of_query["control"].values[[w[0] in "ab" for w in words]], 0.0, atol=0.03)
    assert np.isnan(of_query["distinctness"].values[[w.startswith("n") for w in words]]).all()  # never before `says`
    shares = of_query["cooccurrence"].values[[w[0] in "ab" for w in words]]
    assert shares.sum() == pytest.approx(1.0)


def test_correlations_tell_the_explanations_apart() -> None:
    rng = np.random.default_rng(1)
    import xarray as xr

    frequency = rng.random((1, 2000))
    cooccurrence = frequency + 0.3 * rng.random((1, 2000))
    distinctness, control = rng.random((2, 1, 2000)) - 0.5 * frequency
    data = {"distinctness": distinctness, "control": control, "cooccurrence": cooccurrence, "frequency": frequency}
    counts = xr.Dataset({k: (("query", "token"), v) for k, v in data.items()}, coords={"query": [0]})
    correlations = rank_correlations(counts, distinctness).isel(query=0)
    assert float(correlations["partial"].sel(explanation="distinctness")) == pytest.approx(1.0, abs=1e-6)
    # nothing else explains anything once distinctness is controlled for; n = 2000, so |r| > 0.09 once in 10^4
    correlations = rank_correlations(counts, distinctness + 0.5 * rng.random((1, 2000))).isel(query=0)
    assert float(correlations["partial"].sel(explanation="distinctness")) > 0.5
    assert abs(float(correlations["partial"].sel(explanation="cooccurrence"))) < 0.09
    plain = float(correlations["plain"].sel(explanation="frequency"))
    assert plain == pytest.approx(stats.spearmanr(distinctness[0], frequency[0])[0], abs=0.1)
    assert plain < -0.2  # through distinctness alone
    # logits that follow frequency are not attributed to distinctness or its control, though both decrease with it
    correlations = rank_correlations(counts, frequency + 0.01 * rng.random((1, 2000))).isel(query=0)
    assert float(correlations["plain"].sel(explanation="distinctness")) < -0.2
    for name in ("distinctness", "control"):
        assert abs(float(correlations["partial"].sel(explanation=name))) < 0.09


def test_few_tokens_or_other_shapes(counts) -> None:
    with pytest.raises(InputError, match="give one number for each query and token"):
        rank_correlations(counts, np.zeros((2, 3)))
    thin = counts.where(counts["token"] < 5)
    correlations = rank_correlations(thin, np.random.default_rng(0).random(counts["distinctness"].shape))
    assert np.isnan(correlations["partial"].values).all()
