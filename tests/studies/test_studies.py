"""Each study on a small text, and what the documents say of the committed numbers."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import falls
import joma_units
import joma_wikitext
import scansnap as ss
import snap
import token_rates
import tokens
from tests.figures.conftest import committed
from token_choice import count_tokens, rank_correlations

ROOT = Path(__file__).parents[2]


def test_studies_use_the_public_api_and_the_helpers_of_figures() -> None:
    for path in (ROOT / "studies").glob("*.py"):
        inner = re.findall(r"(?:from|import) (scansnap\S+)", path.read_text())
        assert set(inner) <= {"scansnap.figures.statistics", "scansnap.figures.style"}, path


def test_tokens(corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "QUERIES", 4)
    logits = tokens.train(corpus, num_seeds=2, ratios=(1.0, 10.0), steps=3, folder=tmp_path, progress=False)
    again = tokens.train(corpus, num_seeds=2, ratios=(1.0, 10.0), steps=3, folder=tmp_path, progress=False)
    xr.testing.assert_equal(logits, again)  # read, not trained again
    dataset = tokens.prepare(text=corpus, logits=logits)
    assert dataset["partial"].dims == ("ratio", "seed", "explanation")
    assert len(tokens.trends(dataset)) == 6
    assert not np.allclose(logits["logits"].isel(end=0), logits["logits"].isel(end=1))
    tokens.draw(dataset)


def test_snap(corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snap, "OTHER_BATCHES", (50,))
    monkeypatch.setattr(snap, "RATES", {"transformer": (1.0, 2.0), "yz": (100.0, 300.0)})
    small = {"text": corpus, "sizes": (1800,), "steps": 8, "width": 4, "progress": False}
    dataset = snap.prepare(**small, folder=tmp_path)
    assert dataset["late"].shape == (10, 1)
    assert np.isfinite(dataset["loss"]).all()
    assert len(list(tmp_path.glob("*.zarr"))) == 10
    assert [trend.statement.split()[0] for trend in snap.trends(dataset)] == ["At", "At", "A", "Per"] * 2
    assert len(snap.draw(dataset).axes) == 6
    with pytest.raises(ss.InputError, match="29,323 tokens, so it has no 20,000 tokens from 20,000 on: give a longer"):
        snap.train(corpus, snap.Cell("transformer", 20_000, 1.0), 1, steps=1)


def test_snap_tells_a_falling_rate_from_a_vanishing_residual() -> None:
    """By updates both are frozen, per unit of rate only the second."""
    records, steps = np.arange(0, 201, 2), 200
    shares = np.append(1.0, np.diff(snap._clock("cosine", records, steps)) / 2)
    for settles in (True, False):
        moved = 0.1 * shares * np.where((shares < 0.9) & settles, 1e-3, 1.0)
        values = {"moved": moved, "loss": np.ones(101), "normalized_entropy": np.ones(101)}
        run = xr.Dataset({name: ("record", value) for name, value in values.items()}, coords={"record": records})
        dataset = snap.gathered([snap.Cell("yz", 2000, 1.0, "cosine")], [run], steps)
        assert np.isfinite(dataset["snap_step"]).all()
        assert bool(np.isfinite(dataset["snap_by_rate"]).all()) == settles


def test_distinct_words_are_distinct_and_common_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word two before `says` (a0 to a9: distinct) decides the word after it; b0 to b9 are random."""
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    draws = np.random.default_rng(0).integers(10, size=(4000, 2))
    (tmp_path / "text.txt").write_text("".join(f"a{a} b{b} says n{a} .\n" for a, b in draws))
    corpus = ss.read_corpus(tmp_path / "text.txt")
    query = int(corpus.tokenizer.encode("says")[0])
    counts = count_tokens(corpus, [query], window=3, tokens=corpus.vocab_size).isel(query=0)
    kind = np.array([word[0] for word in corpus.words(np.arange(corpus.vocab_size))])
    # each a determines which of ten words is next: ln 10 = 2.30 nats, within 5%, since it was drawn 400 +- 19 times
    np.testing.assert_allclose(counts["distinctness"].values[kind == "a"], np.log(10), atol=0.2)
    # 400 counts over ten next words: 9/800 = 0.011 nats by chance, like the shuffles; sd 0.005, twenty words
    np.testing.assert_allclose(counts["distinctness"].values[kind == "b"], 0.0, atol=0.03)
    np.testing.assert_allclose(counts["control"].values[np.isin(kind, ["a", "b"])], 0.0, atol=0.03)
    assert np.isnan(counts["distinctness"].values[kind == "n"]).all()  # never before `says`
    assert counts["cooccurrence"].values[np.isin(kind, ["a", "b"])].sum() == pytest.approx(1.0)


def test_correlations_tell_the_explanations_apart() -> None:
    rng = np.random.default_rng(1)
    frequency = rng.random((1, 2000))
    cooccurrence = frequency + 0.3 * rng.random((1, 2000))
    distinctness, control = rng.random((2, 1, 2000)) - 0.5 * frequency
    data = {"distinctness": distinctness, "control": control, "cooccurrence": cooccurrence, "frequency": frequency}
    counts = xr.Dataset({k: (("query", "token"), v) for k, v in data.items()}, coords={"query": [0]})
    # nothing else explains anything once distinctness is controlled for; n = 2000, so |r| > 0.09 once in 10^4
    correlations = rank_correlations(counts, distinctness + 0.5 * rng.random((1, 2000))).isel(query=0)
    assert float(correlations["partial"].sel(explanation="distinctness")) > 0.5
    assert abs(float(correlations["partial"].sel(explanation="cooccurrence"))) < 0.09
    # logits that follow frequency are not attributed to distinctness or its control, though both decrease with it
    correlations = rank_correlations(counts, frequency + 0.01 * rng.random((1, 2000))).isel(query=0)
    assert float(correlations["plain"].sel(explanation="distinctness")) < -0.2
    for name in ("distinctness", "control"):
        assert abs(float(correlations["partial"].sel(explanation=name))) < 0.09


def test_what_the_documents_say_is_in_the_committed_numbers() -> None:
    """The statements of docs/text_results.md, from docs/data."""
    selected = committed("tokens")
    assert [t.verdict for t in tokens.trends(selected)] == ["holds", "holds", "holds", "not settled", "holds", "holds"]
    assert abs(selected["partial"].sel(explanation="control").mean("seed")).max() < 0.01
    runs = committed("snap").set_index(cell=("model", "size", "lr", "schedule", "batch_size")).sel(model="transformer")
    constant, falling = (runs.sel(schedule=schedule) for schedule in ("constant", "cosine"))
    by_heart = constant.sel(batch_size=20, size=2_000).sel(lr=[1.0, 2.0])
    assert (round(float(by_heart["loss"].min()), 3), round(float(by_heart["loss"].max()), 3)) == (0.003, 0.010)
    assert (by_heart["snap_step"] <= 1400).all()
    assert (constant.sel(batch_size=20, size=200_000)["loss"] > 0.6).all()
    frozen = np.sort(constant["entropy"].values[constant["snap_step"].notnull().values])
    assert len(frozen) == 15
    assert (round(float(frozen[2]), 2), round(float(frozen[-1]), 2)) == (0.51, 0.58)
    stopped, at_rest = (falling.sel(batch_size=20)[name].notnull() for name in ("snap_step", "snap_by_rate"))
    assert (int(stopped.sum()), int(at_rest.sum()), at_rest.size) == (21, 14, 27)


def test_a_fall_is_found_by_the_sign_of_the_drive() -> None:
    """Two unequal classes at a ratio of 10 under true SGD: the first token falls after 31 steps, and none by 20."""
    classes = falls.one_query(np.array([[0.5, 0.4, 0.1], [0.1, 0.7, 0.2]]), 4000)
    assert falls.first_fall(classes, ratio=10, until=1e3) == pytest.approx(30.7, rel=0.01)
    assert falls.first_fall(classes, ratio=10, until=20.0) == np.inf


def test_rates_are_compared_at_the_same_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for name, value in {"NUM_SEEDS": 2, "STEPS": 2, "WIDTH": 4, "RESULTS": tmp_path / "rates.json"}.items():
        monkeypatch.setattr(token_rates, name, value)
    token_rates.main("example")
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("1/", "5/")) for line in lines) == 8
    assert sum("after Holm" in line for line in lines) == 5
    token_rates.main("example")  # read, not trained again
    assert len(capsys.readouterr().out.splitlines()) == len(lines) - 8


def test_joma_on_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass of a small model, with the authors' words and every layer's entropy."""
    assert joma_wikitext.split_signs('He said: "Go, now (or never)!"\nIt\'s 1.') == (
        "he said go , now ( or never ) ! it ' s 1 ."
    )
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    for split, words in (("train", 1500), ("valid", 100)):
        (tmp_path / f"{split}.txt").write_text("a b. c d\n" * (words // 5))
    (folder := tmp_path / "words").mkdir()
    joma_wikitext.prepare_text(tmp_path, folder)
    options = {"device": "cpu", "passes": 1, "record_every": 1, "model": {"width": 4, "feed_forward": 4}}
    run = joma_wikitext.train(folder, 1e-3, 2, 1, options, math.inf)
    assert (run["types"], run["updates"], run["updates_per_pass"]) == (7, 2, 2)  # a b . c d, <eos> and <unk>
    assert np.shape(run["entropy"]) == (2, 3)
    assert len(joma_wikitext.describe(run)) == 2


def test_attention_that_becomes_dense_again() -> None:
    curves = np.array([[2.0, 1.0, 1.5], [2.0, 1.0, 1.05], [2.0, 1.95, 2.0], [2.0, 1.5, 1.0]])
    assert joma_units.is_dense_again(curves).tolist() == [True, False, False, False]
    for rate in (None, 1.0):  # attention hardly moves
        assert joma_units.count_dense({"tokens": 3, "contexts": 3}, ratio=1e-6, seeds=1, rate=rate) == "0"
    assert joma_units.count_dense({"activation": "relu"}, ratio=1, seeds=1, rate=None) == "-"
