"""When attention snaps on text: prepared from the smallest runs, and judged from made-up ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from scansnap.figures.beyond import snap
from scansnap.runtime.errors import InputError
from scansnap.text.training.windows import Columns, consecutive

STEPS = 200
RECORDS = np.arange(0, STEPS + 1, 2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(tmp_path_factory.mktemp("cache")))
        return ss.read_corpus("example")


def run(late: float, loss: float) -> xr.Dataset:
    """Attention that moves 0.1 a record in the first half, and then this share of it."""
    moved = np.where(RECORDS > STEPS / 2, 0.1 * late, 0.1)
    moved[0] = np.nan
    values = {"moved": moved, "loss": np.full(len(RECORDS), loss), "normalized_entropy": np.full(len(RECORDS), 0.5)}
    return xr.Dataset({name: ("record", value) for name, value in values.items()}, coords={"record": RECORDS})


def made_up(*, loss_power: float = 1.0, settles: bool = True) -> xr.Dataset:
    """Runs whose late change grows with the size and the rate and falls with the batch; a power of it is the loss.

    A falling rate slows attention as much as itself, and where its late change is small it settles besides, if it does.
    """
    settings, runs = snap.cells(["transformer"], (2_000, 20_000)), []
    shares = np.append(1.0, np.diff(snap._clock("cosine", RECORDS, STEPS)) / 2)
    for cell in settings:
        late = 0.004 * cell.lr * (cell.size / 2000) ** 1.5 * (20 / cell.batch_size) ** 0.3
        for seed in range(3):
            one_run = run(late * (1 + 0.05 * seed), loss=late**loss_power)
            if cell.schedule == "cosine":
                one_run["moved"][:] = 0.1 * shares * np.where((shares < 0.9) & settles & (late < 0.1), 1e-3, 1.0)
            runs.append(one_run)
    return snap.gathered(settings, runs, STEPS)


def test_a_small_text(corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snap, "OTHER_BATCHES", (50,))
    monkeypatch.setattr(snap, "RATES", {"transformer": (1.0, 2.0), "yz": (100.0, 300.0)})
    small = {"text": corpus, "sizes": (1800,), "steps": 8, "width": 4, "progress": False}
    dataset = snap.prepare(**small, folder=tmp_path)
    assert dataset["late"].shape == (10, 1)
    assert dataset["model"].values.tolist() == ["transformer"] * 5 + ["yz"] * 5
    assert np.isfinite(dataset["loss"]).all()
    assert len(list(tmp_path.glob("*.zarr"))) == 10
    xr.testing.assert_equal(dataset, snap.prepare(**small, folder=tmp_path))  # read, not trained again
    assert [trend.statement.split()[0] for trend in snap.trends(dataset)] == ["At", "At", "A", "Per"] * 2
    assert len(snap.draw(dataset).axes) == 6


def test_attention_is_measured_on_the_windows_trained_on(corpus) -> None:
    columns = Columns(corpus.train[:2000], 20, 35)
    windows = {tuple(row) for row in consecutive(columns.inputs(), 35)[:, :-1].tolist()}
    trained = {tuple(row) for step in range(columns.per_pass) for row in columns.at(step)[0].tolist()}
    assert windows == trained


def test_every_statement_can_hold_and_fail() -> None:
    assert [trend.verdict for trend in snap.trends(made_up())] == ["holds"] * 7
    wrong_loss = [trend.verdict for trend in snap.trends(made_up(loss_power=-1.0))]
    assert wrong_loss == ["fails", "fails", "holds", "holds", "holds", "holds", "fails"]
    dataset = made_up()
    dataset["late"] = 1e-3 / dataset["late"]
    assert [trend.verdict for trend in snap.trends(dataset)][1:5] == ["fails"] * 4
    dataset["snap_by_rate"] = dataset["snap_step"]  # all that stops has settled
    assert snap.trends(dataset)[5].verdict == "fails"


def test_a_falling_rate_is_told_from_a_vanishing_residual() -> None:
    """By updates both are frozen, per unit of rate only the second."""
    for settles in (True, False):
        dataset = made_up(settles=settles)
        falling = dataset.isel(cell=(dataset["schedule"].values == "cosine") & (dataset["size"].values == 2000))
        assert np.isfinite(falling["snap_step"]).all()
        assert bool(np.isfinite(falling["snap_by_rate"]).all()) == settles


def test_diverged_runs_are_left_out() -> None:
    dataset = made_up()
    dataset["loss"][0, 0] = dataset["late"][0, 0] = np.nan
    trends = snap.trends(dataset)
    assert "5 settings" in trends[0].note
    assert trends[2].expected == "2 of 2 comparisons"
    snap.draw(dataset)
    dataset["loss"][:] = dataset["late"][:] = np.nan
    assert snap.trends(dataset)[0].verdict == "not settled"
    snap.draw(dataset)


def test_too_short_a_text_is_refused(corpus) -> None:
    with pytest.raises(
        InputError, match=r"has 29,323 tokens, so it has no 20,000 tokens from 20,000 on: give a longer"
    ):
        snap.train(corpus, snap.Cell("transformer", 20_000, 1.0), 1, steps=1)
    with pytest.raises(InputError, match="this figure is made from text"):
        snap.prepare()
