"""`flow`: the limit of small steps, times far apart, and the laws that hold along it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scansnap as ss


@pytest.mark.parametrize("decoder_gradient", ["true", "modified"])
def test_training_converges_to_the_flow_at_first_order(decoder_gradient: str) -> None:
    """Halving the rates and doubling the steps halves the distance: order 1 to within 0.1, over three halvings."""
    classes = ss.single_common(num_classes=4, num_distinct=3, vocab_size=50)
    gaps = []
    for scale in (0.4, 0.2, 0.1, 0.05):
        steps = round(20 / scale)
        rates = {"lr_y": 1.0 * scale, "lr_z": 0.7 * scale, "decoder_gradient": decoder_gradient}
        trained = ss.train(
            classes, **rates, steps=steps, batch_size=None, seq_len=math.inf, dtype="float64", record_every=steps
        )
        flowed = ss.flow(classes, **rates, times=[steps], rtol=1e-11, atol=1e-13)
        gap = trained["attention_logits"].values[0, -1] - flowed["attention_logits"].values[0, -1]
        gaps.append(np.abs(gap).max())
    orders = np.log2(np.array(gaps[:-1]) / np.array(gaps[1:]))
    assert np.abs(orders - 1).max() < 0.1


def test_ten_to_the_twelve() -> None:
    """K = 10, M = 1000, 51 contextual tokens: loss falls like 1/t to the end, and the laws of the start still hold."""
    times = np.concatenate([[0.0], np.logspace(0, 12, 25)])
    variables = ("loss", "attention", "attention_logits", "decoder")
    ds = ss.flow(ss.single_common(), lr_y=0.5, lr_z=0.05, times=times, record=variables)
    assert ds["status"].values.tolist() == ["ok"]
    loss = ds["loss"].values[0]
    assert loss[0] == pytest.approx(math.log(1000))
    slopes = np.diff(np.log(loss[-8:])) / np.diff(np.log(times[-8:]))
    assert np.abs(slopes + 1).max() < 0.05
    assert loss[-1] < 1e-10
    z = ds["attention_logits"].values[0, :, 0, 0, 0]
    assert (np.diff(z[:, 0]) < 0).all()  # the common token loses
    assert (np.diff(z[:, 5]) > 0).all()  # the most frequent distinct token gains
    assert np.abs(z.sum(1)).max() < 1e-6
    assert np.abs(ds["decoder"].values.sum(-1)).max() < 1e-6
    assert (np.diff(z[1:, 1:6], axis=1) > 0).all()  # among a class's distinct tokens the more frequent gain more


def test_times_may_be_few_or_start_at_zero() -> None:
    classes = ss.syn_small()
    whole = ss.flow(classes, lr_y=1.0, lr_z=1.0, times=[0, 1, 10, 1e6])
    part = ss.flow(classes, lr_y=1.0, lr_z=1.0, times=[1e6])
    assert whole["attention_logits"].values[0, 0].any() == False  # noqa: E712
    assert np.allclose(whole["attention"].values[0, -1], part["attention"].values[0, 0], atol=1e-6)


def test_rates_only_set_the_clock() -> None:
    """Multiplying both rates by a number divides time by it."""
    classes = ss.syn_medium(num_query=2)
    slow = ss.flow(classes, lr_y=0.01, lr_z=0.02, times=[100.0, 1e5])
    fast = ss.flow(classes, lr_y=1.0, lr_z=2.0, times=[1.0, 1e3])
    assert np.allclose(slow["attention_logits"], fast["attention_logits"], atol=1e-7)


def test_several_runs_and_a_frozen_attention() -> None:
    ds = ss.flow(ss.syn_small(), lr_y=[1.0, 0.5], lr_z=[0.0, 1.0], times=[1, 1e4])
    assert np.abs(ds["attention_logits"].values[0]).max() == 0
    assert np.abs(ds["attention_logits"].values[1]).max() > 0.1


def test_what_cannot_be_integrated_is_given_up(monkeypatch) -> None:
    from scansnap.dynamics import flow as flowing

    monkeypatch.setattr(flowing, "MOST_EVALUATIONS", 50)
    ds = ss.flow(ss.syn_small(), lr_y=1.0, lr_z=1.0, times=[1, 1e9])
    assert ds["status"].values.tolist() == ["failed"]
    assert np.isnan(ds["loss"]).all()


def test_stored_and_read_again(tmp_path) -> None:
    path = tmp_path / "flow.zarr"
    first = ss.flow(ss.syn_small(), lr_y=1.0, lr_z=1.0, times=[1, 10], store=path).load()
    again = ss.flow(ss.syn_small(), lr_y=1.0, lr_z=1.0, times=[1, 10], store=path).load()
    assert first.identical(again)
    with pytest.raises(ss.StoreError, match="holds another run"):
        ss.flow(ss.syn_small(), lr_y=1.0, lr_z=2.0, times=[1, 10], store=path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": []}, "give increasing numbers"),
        ({"times": [2, 1]}, "give increasing numbers"),
        ({"times": [-1, 1]}, "give increasing numbers"),
        ({"times": "soon"}, "times is 'soon'"),
        ({"rtol": 0}, "rtol is 0"),
        ({"decoder_gradient": "real"}, "unknown decoder_gradient"),
        ({"record": "losses"}, "did you mean 'loss'"),
        ({"lr_z": float("nan")}, "lr_z is nan"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.flow(ss.syn_small(), **{"lr_y": 1.0, "lr_z": 1.0, "times": [1], **change})
