"""`flow`: the limit of small steps, times far apart, and the laws that hold along it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import scansnap as ss
from scansnap.data.named_classes import as_source
from scansnap.dynamics import yz_flow
from scansnap.dynamics.gradients import LayoutTensors, gradients, population_batch
from scansnap.dynamics.options import FlowOptions
from scansnap.dynamics.yz_flow import YZFlowRuns
from scansnap.dynamics.yz_tasks import YZFlow

pytestmark = pytest.mark.rounding


class SquaredLogits:
    """A map of a user's own: attention in proportion to a (1 + z^2)."""

    def forward(self, z: torch.Tensor, log_a: torch.Tensor) -> torch.Tensor:
        return log_a.exp() * (1 + (z + 0.1) ** 2)


SHARED_NEXT_TOKENS = ss.SequenceClasses(
    probs=[
        [0.5, 0.3, 0.2, 0, 0, 0, 0, 0],
        [0.5, 0, 0, 0.5, 0, 0, 0, 0],
        [0.2, 0, 0.8, 0, 0, 0, 0, 0],
        [0.3, 0.6, 0, 0.1, 0, 0, 0, 0],
    ],
    query=[4, 4, 5, 5],
    next_token=[6, 7, 6, 7],
    vocab_size=8,
)
ONE_QUERY = ss.single_common(num_classes=4, num_distinct=3, vocab_size=50)
OTHER_LAYER = {"normalization": "layer", "residual": True, "heads": 2, "init": "uniform"}


@pytest.mark.parametrize(
    ("classes", "more"),
    [
        (ONE_QUERY, {}),
        (ONE_QUERY, {"decoder_gradient": "modified"}),
        (SHARED_NEXT_TOKENS, {}),
        (ss.syn_medium(num_query=2), {**OTHER_LAYER, "attention_prior": {"common": -0.5}}),
    ],
    ids=["one query", "modified", "shared next tokens", "other layer"],
)
def test_training_converges_to_the_flow_at_first_order(classes: ss.SequenceClasses, more: dict[str, Any]) -> None:
    """Halving the rates and doubling the steps halves the distance: order 1 to within 0.1, over three halvings."""
    gaps = []
    for scale in (0.4, 0.2, 0.1, 0.05):
        steps = round(20 / scale)
        rates = {"lr_y": 1.0 * scale, "lr_z": 0.7 * scale, **more}
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
    monkeypatch.setattr(yz_flow, "MOST_EVALUATIONS", 50)
    with pytest.warns(RuntimeWarning, match="came to t = "):
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


PARTS = ("attention_logits", "decoder", "loss", "accuracy")


@pytest.mark.parametrize("rates", [(2.0, 1.0), (1.0, 30.0), (1e3, 1e-3)])
@pytest.mark.parametrize("init", ["zeros", "uniform"])
def test_against_an_explicit_method(rates: tuple[float, float], init: str) -> None:
    """DOP853 at 1e-12, with the gradient of `gradients.py`: two independent integrators and two right-hand sides."""
    options = FlowOptions(lr_y=rates[0], lr_z=rates[1], times=(1.0, 1e2, 1e4), init=init, record=PARTS)
    classes = ss.synthetic(num_query=2, next_per_query=2, num_common=2, num_distinct=3)
    start = YZFlow.checked(classes, options).start(options.runs)
    layout = LayoutTensors.of(start.layout, dtype=torch.float64)
    shapes = start.decoder[0].shape, start.attention_logits[0].shape
    entries = start.decoder[0].size

    def slope(u: float, state: np.ndarray) -> np.ndarray:
        y = torch.from_numpy(state[:entries]).reshape(1, *shapes[0])
        z = torch.from_numpy(state[entries:]).reshape(1, *shapes[1])
        gradient = gradients(layout, y, z, population_batch(layout, 1))
        dy, dz = rates[0] * layout.entry_rate * gradient.decoder, rates[1] * gradient.attention_logits
        return math.exp(u) * np.concatenate([dy.numpy().ravel(), dz.numpy().ravel()])

    beginning = np.concatenate([start.decoder[0].ravel(), start.attention_logits[0].ravel()])
    times = np.log1p(options.times)
    exact = solve_ivp(slope, (0, times[-1]), beginning, "DOP853", times, rtol=1e-12, atol=1e-14).y.T
    flowed = ss.flow(classes, **vars(options))
    logits = flowed["attention_logits"].values[0, :, 0, 0].reshape(3, -1)
    decoder = start.layout.expand_decoder(exact[:, :entries].reshape(3, *shapes[0]))[:, 0]
    assert np.abs(logits - exact[:, entries:]).max() < 1e-7
    assert np.abs(flowed["decoder"].values[0, :, 0, 0] - decoder).max() < 1e-7


@pytest.mark.parametrize("init", ["zeros", "uniform"])
def test_any_rates_on_syn_medium(init: str) -> None:
    """From 1e-6 to 1e6 each, the stiffest with a ratio of 1e12; the loss comes to between 1.5 and 5 over lr_y t."""
    rates = np.array([1e-6, 1.0, 1e6])
    lr_y, lr_z = (axis.ravel() for axis in np.meshgrid(rates, rates))
    ds = ss.flow("syn-medium-1", lr_y=lr_y, lr_z=lr_z, times=[1e12], init=init, record="loss")
    assert (ds["status"] == "ok").all()
    loss = ds["loss"].values[:, 0] * lr_y * 1e12
    assert ((loss > 1.5) & (loss < 5)).all()


def test_a_stiff_flow_to_many_digits() -> None:
    """Its tolerances are met: at a thousandth of them the attention of a stiff run differs by a few of them."""
    words = {"lr_y": 1e-3, "lr_z": 10.0, "times": np.geomspace(1, 1e12, 49), "record": "attention_logits"}
    rough = ss.flow("syn-medium-3", **words)["attention_logits"].values
    fine = ss.flow("syn-medium-3", **words, rtol=1e-11, atol=1e-13)["attention_logits"].values
    assert 1e-12 < np.abs(rough - fine).max() < 1e-7


def test_a_run_beside_others_is_the_run_alone(monkeypatch) -> None:
    """Bit for bit, whatever the number of runs and threads, and how many runs are in memory at a time."""
    lr_y, lr_z = np.geomspace(0.1, 10, 4), np.geomspace(100, 0.01, 4)
    words = {"times": [1, 1e4, 1e8], "init": "uniform", "record": PARTS}
    together = ss.flow(ss.syn_medium(num_query=2), lr_y=lr_y, lr_z=lr_z, seeds=range(4), **words)
    for r in (0, 3):
        alone = ss.flow(ss.syn_medium(num_query=2), lr_y=lr_y[r], lr_z=lr_z[r], seeds=r, **words)
        for name in PARTS:
            assert np.array_equal(together[name].values[r], alone[name].values[0])
    monkeypatch.setattr("scansnap.dynamics.flow.PIECE_BYTES", 1)
    assert ss.flow(ss.syn_medium(num_query=2), lr_y=lr_y, lr_z=lr_z, seeds=range(4), **words).equals(together)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"init": "uniform"},
        {"attention_prior": {"common": -1.0}},
        {"decoder_gradient": "modified"},
        {"heads": 2, "init": "uniform", "residual": True, "normalization": "layer"},
    ],
)
def test_compiled_code_and_tensors_agree(more: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """At tolerances far below the difference allowed."""
    settings = {"lr_y": 1.0, "lr_z": 20.0, "times": (1.0, 1e3, 1e6), "rtol": 1e-10, "atol": 1e-12, **more}
    compiled = ss.flow("syn-small", **settings, record=PARTS)
    monkeypatch.setattr(yz_flow, "has_kernel", lambda layer: False)
    tensors = ss.flow("syn-small", **settings, record=PARTS)
    for name in ("attention_logits", "decoder"):
        assert np.abs(compiled[name] - tensors[name]).max() < 1e-8
    assert np.allclose(compiled["loss"], tensors["loss"], rtol=1e-8)
    assert np.array_equal(compiled["accuracy"], tensors["accuracy"])


@pytest.mark.parametrize(
    "more",
    [
        {"decoder_gradient": "modified"},
        {"heads": 2, "init": "uniform"},
        {"normalization": "layer"},
        {"residual": True},
        {"attention_map": SquaredLogits()},
    ],
)
def test_other_layers_are_stiff_safe(more: dict) -> None:
    """Whatever compiled code does not serve is integrated with the same method, at a ratio of 1e4."""
    ds = ss.flow(ss.syn_small(), lr_y=1e-2, lr_z=1e2, times=[1.0, 1e9], record="loss", **more)
    assert ds["status"].values.tolist() == ["ok"]
    assert ds["loss"].values[0, -1] < 1e-5


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


def test_the_loss_falls_like_one_over_t_where_next_tokens_have_several_queries() -> None:
    late = ss.flow(SHARED_NEXT_TOKENS, lr_y=1.0, lr_z=0.7, times=np.logspace(9, 12, 4))["loss"].values[0]
    assert np.abs(np.diff(np.log10(late)) + 1).max() < 0.05


@pytest.mark.parametrize("more", [{"heads": 2}, {"residual": True, "heads": 2}, {"normalization": "layer", "heads": 2}])
def test_rounding_leaves_nothing_of_the_sum_of_each_class(more: dict) -> None:
    """Two classes of one query without a token in common: the dz of each sums to zero far below its own size.

    Attention of 1 - 1e-15 leaves a dz of that order, as small as the rounding of the terms that it is made of.
    """
    probs = [[0.5, 0.3, 0.2, 0, 0, 0, 0], [0, 0, 0, 0.5, 0.3, 0.2, 0]]
    classes = ss.SequenceClasses(probs=probs, query=[6, 6], next_token=[0, 3], vocab_size=7)
    work = YZFlow(as_source(classes), FlowOptions(lr_y=1.0, lr_z=1.0, times=[1.0], init="uniform", **more))
    start = work.start(work.options.runs)
    start.attention_logits[0, :, :6] += [34.0, 0.0, 0.0, 9.0, 43.0, 9.0]  # the second class's winner is far above
    runs = YZFlowRuns(work, start, work.options.runs)
    slopes, _ = runs.gradient(0)(runs.layout.first_state(0)[None])
    slope = runs.layout.split(0, slopes)[1]
    for own in (slope[0, :, :3], slope[0, :, 3:6]):
        assert 1e-18 < np.abs(own).max(axis=1).min() < np.abs(own).max() < 1e-12
        assert (np.abs(own.sum(axis=1)) < 1e-9 * np.abs(own).max(axis=1)).all()
