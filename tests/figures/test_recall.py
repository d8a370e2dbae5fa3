"""Figures 11 and 12: recall by hand, and trends that can fail."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.figures import recall

SLOWER = {
    "11": "A smaller η_Y/η_Z makes recall descend more slowly ({}).",
    "12": "A larger η_Z makes recall descend more slowly ({}).",
}
AXIS = {"11": 3, "12": 2}  # of the descent rate, (reading, num_query, lr_z, lr_y_over_lr_z, seed)


def test_recall_by_hand(runs) -> None:
    dataset = recall.prepare_recall(runs)
    cell = {"num_query": 3, "lr_z": 1.0, "lr_y_over_lr_z": 2.0, "seed": 4}
    values = runs["softmax"].sel(cell).values[:6] * 79  # six classes, M = 79
    curve = dataset["recall"].sel(reading="softmax", **cell)
    for threshold in (0.5, 1.0, 2.0):
        assert float(curve.sel(threshold=threshold, method="nearest")) == (values > threshold).mean()
    slope = np.polyfit(recall.THRESHOLDS, curve.values, 1)[0]
    assert float(dataset["descent"].sel(reading="softmax", **cell)) == pytest.approx(-slope)


@pytest.mark.parametrize("number", ["11", "12"])
def test_trends_can_fail(number: str, prepare, trends_of) -> None:
    dataset = prepare(number)
    statement = SLOWER[number].format("softmax of z_m")
    before = trends_of(number, dataset)[statement]
    assert before.measured >= 32  # of 48, with six seeds
    reversed_descent = dataset["descent"].copy(data=np.flip(dataset["descent"].values, AXIS[number]))
    after = trends_of(number, dataset.assign(descent=reversed_descent))[statement]
    assert after.verdict == "fails"
    assert after.measured < 16


def test_descent_follows_the_published_entropies_in_one_reading(prepare, trends_of) -> None:
    """Which softmax is meant: the row of a query, not attention of a class; other readings of the rates are noticed."""
    statement = "Recall descends faster where Figure 6's published entropy is higher ({})."
    dataset = prepare("11")
    trends = trends_of("11", dataset)
    softmax, attention = (trends[statement.format(words)] for words in ("softmax of z_m", "attention c_n"))
    assert softmax.verdict == "holds"
    assert softmax.measured > 0.7
    assert attention.verdict == "fails"
    assert attention.measured < 0
    turned = trends_of("11", dataset.assign(descent=-dataset["descent"]))[statement.format("softmax of z_m")]
    assert turned.verdict == "fails"
    assert turned.measured < -0.7
