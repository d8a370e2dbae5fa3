"""JoMA: its gradient against autograd of the plain model, its laws, its claims, and what its checks notice."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor
from torch.nn import functional

import scansnap as ss
from scansnap.papers.joma import theory as laws
from scansnap.papers.joma.figure import FIGURE
from scansnap.papers.joma.system import JoMA
from tests.papers.autograd import compare_with_autograd

pytestmark = pytest.mark.rounding

ACTIVATIONS: dict[str, Any] = {
    "linear": lambda a: a,
    "relu": functional.relu,
    "square": torch.square,
    "gelu": functional.gelu,
    "tanh": torch.tanh,
}
SEEDS = np.array([3, 4], np.uint64)


@pytest.mark.parametrize("attention_map", ["linear", "exp", "softmax"])
@pytest.mark.parametrize("objective", ["cross_entropy", "constant", "squared"])
def test_the_gradient_is_autograds_of_the_model_with_embeddings(attention_map: Any, objective: Any) -> None:
    """f = U_C b + u_m and h = φ(W f) with random orthonormal embeddings, context by context."""
    inputs: Any = itertools.cycle(("dirichlet", "bump", "single"))
    embeddings = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    for activation, residual in itertools.product(ACTIVATIONS, (True, False)):
        system = JoMA(
            tokens=3, hidden=4, classes=3, contexts=6, queries=2, attention_map=attention_map, activation=activation,
            objective=objective, inputs=next(inputs), residual=residual, start_scale=0.4, concentration=0.5,
        )  # fmt: skip

        def loss_of(blocks: Any, data: Any, system: JoMA = system) -> Tensor:
            z, losses = blocks["z"], []
            W = embeddings.T @ torch.cat([blocks["v"], blocks.get("r", torch.zeros(2, 4))])  # (width, hidden)
            for m, s in itertools.product(range(2), range(6)):
                b = data["x"][m, s] * (z[m] if system.attention_map == "linear" else z[m].exp())
                b = b / b.sum() if system.attention_map == "softmax" else b
                f = b @ embeddings[:3] + (embeddings[3 + m] if system.residual else 0)
                logits = ACTIVATIONS[system.activation](f @ W) @ data["output"]
                label = system.labels[s]
                if system.objective == "cross_entropy":
                    losses.append(functional.cross_entropy(logits, torch.tensor(label)))
                elif system.objective == "constant":
                    losses.append(logits.mean() - logits[label])
                else:
                    losses.append(((logits - data["target"][m, s]) ** 2).sum() / 2)
            return torch.stack(losses).mean()

        compare_with_autograd(system, loss_of)


def test_softmax_gradients_keep_their_digits() -> None:
    """With z = 200 on one token the others have weights of e^-200, and so has the gradient of their logits."""
    system = JoMA(tokens=3, hidden=2, classes=2, contexts=2, concentration=5.0)
    start, data = dict(system.start(SEEDS)), system.data(SEEDS, None)
    start["z"] = np.broadcast_to([200.0, 0.0, 0.0], (2, 1, 3)).copy()
    gradient, _ = system.gradient(
        *({name: torch.from_numpy(v) for name, v in arrays.items()} for arrays in (start, data))
    )
    dz = gradient["z"]
    assert ((dz != 0) & (dz.abs() < 1e-80)).all()
    torch.testing.assert_close(dz.sum(-1), torch.zeros_like(dz[..., 0]), rtol=0, atol=1e-14 * float(dz.abs().max()))


def test_the_law_of_linear_units() -> None:
    drive, size = np.array([0.5, 1.0, -2.0]), 1e-6
    end = laws.blow_up_time(drive)
    for time in (0.1 * end, 0.9 * end):
        v = laws.linear_law(drive, time)
        slope = (laws.linear_law(drive, time + size) - laws.linear_law(drive, time - size)) / (2 * size)
        np.testing.assert_allclose(slope, drive * np.exp(v**2 / 2), rtol=1e-6)
    assert np.isnan(laws.linear_law(drive, 1.001 * end)).tolist() == [False, False, True]


def test_the_laws_of_targets() -> None:
    mu, size, time = np.array([0.5, 1.0, 2.0]), 1e-4, 1.3
    s = laws.homogeneous_law(mu, [time - size, time, time + size])
    v = mu * -np.expm1(-s)
    np.testing.assert_allclose((v[2] - v[0]) / (2 * size), (mu - v[1]) * np.exp(v[1] ** 2 / 2), rtol=1e-6)
    limit = laws.squared_limit(mu)
    np.testing.assert_allclose(limit * np.exp(limit**2 / 2), mu, rtol=1e-12)
    near = limit * (1 + size)
    slope = np.exp(near**2 / 2) * (mu - near * np.exp(near**2 / 2)) / (limit * size)
    np.testing.assert_allclose(-slope, laws.squared_rate(mu), rtol=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"output": "identity", "hidden": 3}, "3 hidden units and 8 classes"),
        ({"inputs": "single"}, "16 contexts and 12 tokens"),
        ({"attention_map": "relu"}, "attention_map"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        JoMA(**settings)


def test_the_figure_notices_reversed_trends() -> None:
    """A small dataset of the figure's form, in which every statement holds; then with each of them reversed."""
    steps, seeds = 3, 5
    dip, fall = np.array([2.0, 1.0, 1.5]), np.array([2.0, 1.5, 1.0])
    entropy = np.array([[np.tile(fall, (seeds, 1)), np.tile(dip, (seeds, 1)), np.tile(dip, (seeds, 1))]] * 4)
    noise = np.linspace(0, 0.01, seeds)[:, None]
    dataset = xr.Dataset(
        {
            "agreement": (("seed", "step"), np.full((seeds, steps), 0.95) + noise),
            "slope": (("seed", "step"), np.full((seeds, steps), 0.9) + noise),
            "v": (("step", "token"), np.zeros((steps, 2))),
            "law": (("law_time", "component"), np.ones((3, 4))),
            "law_entropy": ("law_time", dip),
            "joint_entropy": ("law_time", dip),
            "entropy": (("concentration", "ratio", "seed", "time"), entropy),
        },
        coords={
            "step": range(steps), "law_time": [1.0, 2.0, 3.0], "component": [1.0, 2.0, 3.0, 4.0],
            "concentration": [0.1, 0.3, 1.0, 3.0], "ratio": [0.1, 1.0, 100.0], "time": [0.0, 1.0, 2.0],
        },
    )  # fmt: skip
    assert [trend.holds for trend in FIGURE.trends(dataset)] == [True] * 7
    assert len(FIGURE.draw(dataset).axes) == 7
    reversed_values = {name: 0.5 * dataset[name] for name in ("agreement", "slope")}
    reversed_values |= {
        name: dataset[name] * 0 + xr.DataArray(fall, dims="law_time") for name in ("law_entropy", "joint_entropy")
    }
    reversed_values["entropy"] = dataset["entropy"].isel(ratio=[2, 0, 0]).assign_coords(ratio=dataset["ratio"])
    assert not any(trend.holds for trend in FIGURE.trends(dataset.assign(reversed_values)))
