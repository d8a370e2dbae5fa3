"""The numbers that figures draw, against runs, formulas and counts by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from scansnap import theory
from scansnap.dynamics.published import SYN_MEDIUM
from scansnap.figures import syn_medium
from scansnap.figures.fig_4 import surprise
from scansnap.figures.fig_5 import excess_overlap

pytestmark = pytest.mark.rounding


def test_stages_of_figure_2(prepare) -> None:
    dataset = prepare("2")
    assert dataset.attrs["snap_start"] == float(theory.snap_start(vocab_size=34, num_classes=2, lr_y=1.0))
    moments = dataset["moment"].values
    assert (moments[:, [0, 2, 3]] == (0, 21, 206)).all()
    assert (moments[:, 1] == dataset["speed"].rolling(step=5, center=True).mean().idxmax("step").values).all()
    probs = ss.syn_small().support_probs(0)
    assert dataset["score"].sel(stage="start").values == pytest.approx(np.tile(probs, (6, 1)))
    run = ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=206, seeds=3, record=("attention_logits",))
    last = run["attention_logits"].values[0, -1, 0, 0, 0, :20]
    assert np.array_equal(dataset["logits"].sel(seed=3, stage="end").values, last.astype(float))


def test_dynamics_of_figure_3_are_those_of_the_flow(prepare) -> None:
    dataset = prepare("3")
    times = dataset["time"].values[[40, 80]]
    for gradient in ("true", "modified"):
        flow = ss.flow(
            ss.single_common(), lr_y=2.0, lr_z=0.5, times=times, decoder_gradient=gradient, record=("attention_logits",)
        )
        chi = np.exp(2 * flow["attention_logits"].sel(token=5).values[0, :, 0, 0, 0])
        factor = dataset["growth_factor"].sel(source=gradient, lr_y=2.0, time=times).values
        assert factor == pytest.approx(chi, rel=1e-5)


def test_surprise_is_a_p_value() -> None:
    """Curves from one law are surprising at 10% in a tenth of cases: 400 of them, false alarm below 1e-6."""
    rng = np.random.default_rng(0)
    curves = rng.normal(size=(500, 20)).cumsum(1)
    ranks = [surprise(curves, curve) for curve in rng.normal(size=(400, 20)).cumsum(1)]
    assert 0.03 < np.mean(np.array(ranks) <= 0.1) < 0.2
    assert surprise(curves, curves[0] + 30) == 1 / 501


def test_overlaps_of_favored_tokens_by_hand() -> None:
    """Two rates and two seeds: one token in common at a rate and none between the rates, then the same everywhere."""
    apart = np.zeros((2, 2, 12))
    for i, tokens in enumerate(([0, 1, 2], [2, 3, 4], [5, 6, 7], [7, 8, 9])):
        apart[i // 2, i % 2, tokens] = 1
    assert excess_overlap(apart) == pytest.approx(-1 / 3)
    assert excess_overlap(np.tile(apart[:1, :1], (2, 2, 1))) == pytest.approx(0)


def test_scores_of_figure_6_by_hand(prepare) -> None:
    dataset = prepare("6")
    assert int(dataset["score"].count()) == 64
    cell = {"num_query": 3, "lr_z": 2.0, "lr_y_over_lr_z": 5.0}
    values = dataset["entropy"].sel(cell).values
    error = np.sqrt(0.018**2 / 10 + values.var(ddof=1) / len(values))
    assert float(dataset["score"].sel(cell)) == pytest.approx((values.mean() - 1.899) / error)


def test_the_gap_of_figure_8(prepare) -> None:
    dataset = prepare("8").sel(lr_y=0.5)
    steps = dataset["step"].values
    assert steps[-1] == 10_000
    h = theory.decoder_growth(steps, vocab_size=1000, lr_y=0.5)
    assert np.allclose(dataset["stepwise"] - dataset["gap"] * 0.5 / 1000, h, rtol=1e-12)


def test_recall_by_hand(runs) -> None:
    dataset = syn_medium.prepare_recall(runs)
    cell = {"num_query": 3, "lr_z": 1.0, "lr_y_over_lr_z": 2.0, "seed": 4}
    values = runs["softmax"].sel(cell).values[:6] * 79  # six classes, M = 79
    curve = dataset["recall"].sel(reading="softmax", **cell)
    for threshold in (0.5, 1.0, 2.0):
        assert float(curve.sel(threshold=threshold, method="nearest")) == (values > threshold).mean()
    slope = np.polyfit(syn_medium.THRESHOLDS, curve.values, 1)[0]
    assert float(dataset["descent"].sel(reading="softmax", **cell)) == pytest.approx(-slope)


def test_a_cell_of_syn_medium_is_a_run_of_train(runs) -> None:
    alone = ss.train(ss.syn_medium(num_query=5), **vars(replace(SYN_MEDIUM, lr_y=10.0, lr_z=2.0, seeds=4))).isel(
        step=-1
    )
    cell = runs.sel(num_query=5, lr_z=2.0, lr_y_over_lr_z=5.0, seed=4)
    assert float(cell["entropy"]) == float(alone["entropy"].mean())
    assert np.array_equal(cell["attention"].values[7], alone["attention"].values[0, 0, 0, 7, 80:90])
    assert np.isnan(cell["attention"].values[10:]).all()  # five queries have ten classes


def test_softmax_over_the_vocabulary() -> None:
    """Against the softmax of whole rows of Z at a random start, of which only 90 of 125 tokens are given."""
    rng = np.random.default_rng(0)
    whole = rng.uniform(-1, 1, (200, 125)) / np.sqrt(125)
    expected = np.exp(whole)[:, :90] / np.exp(whole).sum(-1, keepdims=True)
    assert syn_medium.query_softmax(whole[:, :90], 125) == pytest.approx(expected, rel=0.02)
    assert syn_medium.query_softmax(np.zeros((1, 90)), 125) == pytest.approx(1 / 125, rel=1e-3)
