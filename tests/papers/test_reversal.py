"""The reversal curse: gradients against autograd of a plain model, the laws of both models, and where they fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from scansnap.papers.reversal import figure
from scansnap.papers.reversal.system import Bilinear, FactoredReversal, Facts, Reversal, asked_accuracy
from scansnap.runtime.errors import InputError
from tests.papers.autograd import compare_with_autograd

pytestmark = pytest.mark.rounding

SETTINGS: list[dict[str, Any]] = [
    {"pairs": pairs, "both": both, "width": width, "task": task, "identity": identity}
    for pairs, both, width, task, identity in (
        (3, 1, 4, "reversal", "none"),
        (5, 0, 64, "reversal", "A"),
        (4, 3, None, "reversal", "B"),
        (4, 2, 7, "chain", "all"),
        (6, 0, 1000, "chain", "none"),
    )
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", [Reversal, FactoredReversal])
def test_the_gradient_is_that_of_autograd(kind: type[Bilinear], settings: dict[str, Any]) -> None:
    """The mean of torch's own cross-entropy, sentence by sentence."""
    system = kind(**settings)

    def loss_of(blocks: Any, data: Any) -> Any:
        theta = blocks["theta"] if kind is Reversal else blocks["p"] @ blocks["q"].T
        logits = [data["embedding"] @ (theta.T @ data["embedding"][given]) for given in system.trained[:, 0]]
        return torch.nn.functional.cross_entropy(torch.stack(logits), torch.as_tensor(system.trained[:, 2]))

    compare_with_autograd(system, loss_of)


def test_sentences_are_what_the_options_say() -> None:
    facts = Facts(pairs=3, both=1, identity="B")
    said = {" ".join(facts.names[token] for token in sentence) for sentence in facts.trained}
    assert said == {"A0 → B0", "A1 → B1", "A2 → B2", "B0 ← A0", "B0 = B0", "B1 = B1", "B2 = B2"}
    chain = Facts(pairs=2, both=1, task="chain")
    assert [" ".join(chain.names[token] for token in sentence) for sentence in chain.asked] == ["A1 ⇝ C1"]
    with pytest.raises(InputError, match="leave at least one pair"):
        Facts(pairs=3, both=3)


def test_an_answer_is_right_if_it_leads_among_the_tokens_of_its_letter() -> None:
    """B1 ← A1 leads among A0, A1, A2 and B2 ← A2 is level with the others; then A2 overtakes A1."""
    system, theta = Reversal(pairs=3, both=1, width=None), np.zeros((2, 6, 6))
    theta[:, 4, [1, 5]] = 1.0, 2.0  # from B1 to A1, and to B2, which is no candidate
    theta[1, 4, 2] = 3.0
    now = ss.State(system, {"theta": theta}, system.data(np.arange(2, dtype=np.uint64), None), np.zeros(2))
    assert asked_accuracy.compute(now).tolist() == [0.5, 0.0]


def test_coordinates_of_the_span_leave_the_distribution_of_inner_products() -> None:
    """Mean and variance of E E' over 4,000 draws, against 1[i = j] and (1 + 1[i = j])/d; six standard errors."""
    width, draws = 12, 4000
    E = Reversal(pairs=3, both=0, width=width).data(np.arange(draws, dtype=np.uint64), None)["embedding"]
    inner = E @ E.swapaxes(1, 2)
    assert np.abs(inner.mean(0) - np.eye(6)).max() < 6 * (2 / width / draws) ** 0.5
    variance = (1 + np.eye(6)) / width
    assert np.abs(inner.var(0) / variance - 1).max() < 6 * (8 / draws) ** 0.5


def test_rows_of_relations_are_the_sums_of_rows_of_given_tokens() -> None:
    """With a residual connection, at every step of sampled SGD, in rows as float32 leaves them."""
    facts = Facts(pairs=5, both=3)
    record = ("decoder", "query_decoder")
    options: dict[str, Any] = {"residual": True, "seq_len": 3, "batch_size": 4, "dtype": "float64", "record": record}
    run = ss.train(facts.classes, lr_y=2.0, lr_z=1.0, steps=40, **options)
    for i, relation in enumerate(facts.classes.queries):
        given = facts.trained[facts.trained[:, 1] == relation, 0]
        rows = run["decoder"].sel(token=given).values[0, :, 0, 0].sum(1)
        np.testing.assert_allclose(run["query_decoder"].values[0, :, 0, 0, i], rows, atol=1e-12)


def test_the_figure_of_reversed_curves_fails_its_statements() -> None:
    """Curves that run backward in time, width and identities break every statement about them."""

    rng, seeds = np.random.default_rng(0), 4
    widths, early = len(figure.WIDTHS), len(figure.EARLY_TIMES)
    falling = np.array(figure.WIDTHS)[:, None] ** -0.5 * rng.uniform(1, 1.1, (widths, seeds))
    chance = np.full(len(figure.LONG_TIMES), 1 / len(figure.FACTS.names))
    good = xr.Dataset(
        {
            "asked": (("connection", "time"), [chance, figure.LONG_TIMES**-0.25]),
            "ratio": (("width", "seed"), 1 + falling),
            "spread": (("width", "seed"), falling),
            "accuracy": (
                ("identities", "seed", "early"),
                np.array([1.0, 0.2, 0.2, 0.1])[:, None, None] * rng.uniform(0.9, 1, (4, seeds, early)),
            ),
        },
        coords={
            "connection": ["none", "residual"],
            "time": figure.LONG_TIMES,
            "width": list(figure.WIDTHS),
            "identities": list(figure.BRIDGES),
        },
    )
    assert [trend.verdict for trend in figure.trends(good)] == ["holds"] * 5
    turned = {name: good[name].values[::-1] for name in ("ratio", "spread", "accuracy")}
    bad = good.assign({name: (good[name].dims, values) for name, values in turned.items()})
    bad["asked"] = bad["asked"] * bad["time"] ** 0.1
    assert [trend.verdict for trend in figure.trends(bad)] == ["fails"] * 5
