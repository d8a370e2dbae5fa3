"""Figures of text: prepared from the smallest runs, drawn from any numbers, and read back from the committed ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.figures import catalog, text_attention
from scansnap.runtime.errors import InputError
from tests.figures.conftest import check_picture, committed
from tests.small_text import SMALL, small_corpus

FIGURE_7, FIGURE_10 = catalog.recipe("7"), catalog.recipe("10")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(tmp_path_factory.mktemp("cache")))
        corpus = small_corpus(tmp_path_factory.mktemp("text"))
    store = tmp_path_factory.mktemp("runs") / "run.zarr"
    ss.train_text(corpus, lr_y=1.0, steps=40, record_every=5, layers=2, **SMALL, store=store)
    return store


def test_figure_7_on_a_small_text(corpus, tmp_path: Path) -> None:
    dataset = FIGURE_7.prepare(text=corpus, steps=8, num_seeds=2, folder=tmp_path)
    assert dataset["attention"].shape == (2, 4, 35, 35)  # four, however short the run
    assert len(list(tmp_path.glob("*.zarr"))) == 4
    assert dataset["normalized_entropy"].shape == (2, 2, 5)
    assert [t.verdict for t in FIGURE_7.trends(dataset)][1::2] == ["not settled", "not settled"]  # too short to freeze
    again = FIGURE_7.prepare(text=corpus, steps=8, num_seeds=2, folder=tmp_path)  # read, not trained again
    xr.testing.assert_equal(dataset, again)
    check_picture(FIGURE_7.draw(dataset))
    for axes in FIGURE_7.draw(dataset).subfigs[1].axes:  # nothing is called dotted that is not there
        assert axes.get_xlabel() == "updates; no pattern froze"
    dataset["snap_step"][:] = 4.0
    for axes in FIGURE_7.draw(dataset).subfigs[1].axes:
        assert axes.get_xlabel() == "updates; dotted: where a pattern froze"
        assert [line.get_linestyle() for line in axes.lines].count(":") == 4


def test_figure_7_says_when_a_pattern_froze(corpus) -> None:
    dataset = committed("7")
    records = dataset["record"].values
    still = np.where(records < 2000, 0.4, 0.001)
    frozen = dataset.copy(deep=True)
    frozen["moved"][:] = still
    from scansnap.runtime.snap import find_snap

    frozen["snap_step"][:] = find_snap(records, still).step
    assert [t.verdict for t in FIGURE_7.trends(frozen)] == ["holds"] * 4
    dense = frozen.copy(deep=True)
    dense["normalized_entropy"][:] = dense["normalized_entropy"].values[..., ::-1].copy()
    assert [t.verdict for t in FIGURE_7.trends(dense)][::2] == ["fails", "fails"]


def test_figure_10_on_a_small_text(corpus) -> None:
    dataset = FIGURE_10.prepare(text=corpus, steps=3, num_seeds=2, rates=(0.1, 1.0), folder=None)
    assert dataset["entropy"].shape == (2, 2)
    assert np.isfinite(dataset["valid_loss"]).all()
    assert len(FIGURE_10.trends(dataset)) == 2
    assert FIGURE_10.trends(dataset.isel(seed=[0])) == []
    check_picture(FIGURE_10.draw(dataset))


def test_figure_10s_trend_can_go_either_way() -> None:
    dataset = committed("10")
    rng = np.random.default_rng(0)
    falling = dataset.copy(deep=True)
    falling["entropy"][:] = 2.0 - 0.1 * np.arange(dataset.sizes["lr"])[:, None] + 0.01 * rng.random((6, 5))
    assert [t.verdict for t in FIGURE_10.trends(falling)] == ["holds", "holds"]
    rising = falling.copy(deep=True)
    rising["entropy"][:] = falling["entropy"].values[::-1].copy()
    assert [t.verdict for t in FIGURE_10.trends(rising)] == ["fails", "fails"]
    lost = falling.copy(deep=True)
    lost["entropy"][-1, 0] = np.nan  # a run at the largest rate diverged: that rate is left out
    assert "4 of 4 comparisons" in FIGURE_10.trends(lost)[0].expected
    lost["entropy"][[1, 3, 4], 0] = np.nan
    assert FIGURE_10.trends(lost) == []


def test_what_the_documents_say_of_text_is_in_the_committed_numbers() -> None:
    """The statements of docs/text.md, from docs/data."""
    verdicts = [t.verdict for t in FIGURE_7.trends(committed("7"))]
    assert verdicts == ["holds", "fails", "holds", "fails"]  # sparse, but not frozen, with one layer and with three
    assert [t.verdict for t in FIGURE_10.trends(committed("10"))] == ["fails", "holds"]


def test_figures_of_text_need_text() -> None:
    for recipe in (FIGURE_7, FIGURE_10):
        with pytest.raises(InputError, match="this figure is made from text: give"):
            recipe.prepare()


def test_words_stand_on_the_axes(run: Path) -> None:
    dataset = text_attention.prepare_words(ss.load(run), steps=[0, 17, 40], layer=1, head=1, window=1)
    assert dataset["step"].values.tolist() == [0, 15, 40]
    axes = text_attention.draw_words(dataset).axes
    assert [t.get_text() for t in axes[0].get_xticklabels()] == dataset["word"].values.tolist()
    assert [panel.get_title(loc="left") for panel in axes[:3]] == ["step 0", "step 15", "step 40"]
    drawn = np.ma.filled(axes[0].images[0].get_array(), 0.0)
    np.testing.assert_array_equal(drawn, np.tril(dataset["attention"].isel(step=0)))  # not its root, which is a scale
    own = text_attention.prepare_own_text(run, "the old cat purrs")
    assert own["word"].values.tolist() == ["the", "old", "cat", "purrs"]
    np.testing.assert_allclose(own["attention"].sum("key_position"), 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layer": 2}, "layer is 2: this result has layers 0 to 1"),
        ({"head": -1}, "head is -1"),
        ({"window": 9}, "window"),
        ({"steps": []}, "steps is empty"),
    ],
)
def test_what_is_not_there_is_refused(run: Path, options: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        text_attention.prepare_words(ss.load(run), **options)
    with pytest.raises(InputError, match="the text has 1 tokens: give from 2 to 7"):
        text_attention.prepare_own_text(run, "cat")
    with pytest.raises(InputError, match="layer is 5: this model has layers 0 to 1"):
        text_attention.prepare_own_text(run, "the cat", layer=5)


def test_a_run_over_time(run: Path) -> None:
    dataset = text_attention.prepare_curves(ss.load(run))
    assert dataset["rate"].shape == (9, 2, 2)
    assert np.isnan(dataset["rate"][0]).all()
    figure = text_attention.draw_curves(dataset)
    assert len(figure.axes[1].lines) == 4
    assert figure.get_suptitle() == "A transformer on text; no pattern has frozen"
    own_model = ss.load(run).expand_dims(query=2)
    assert text_attention.prepare_curves(own_model).attrs["title"] == "The (Y, Z) model on text"
    marked = dataset.copy(deep=True)
    marked["snap_step"][0, 0] = 20.0
    assert "froze" in text_attention.draw_curves(marked).get_suptitle()
    with pytest.raises(InputError, match="not a result of training on text"):
        text_attention.prepare_curves(ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=2))
