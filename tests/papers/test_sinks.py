"""Attention sinks: gradients against autograd of plain models, digits late in training, and the sequences."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.papers.sinks.system import BigramBackcopy, Sink, attention_on_start
from scansnap.runtime.errors import InputError
from tests.papers.autograd import compare_with_autograd

pytestmark = pytest.mark.rounding

SEEDS = np.arange(3, dtype=np.uint64)


@pytest.mark.parametrize("settings", [{}, {"tokens": 3, "context": 4, "contexts": 1}, {"copying": 20.0, "context": 99}])
def test_the_gradient_of_the_reduction_is_that_of_autograd(settings: dict[str, Any]) -> None:
    system = Sink(**settings)

    def loss_of(blocks: Any, data: Any) -> Any:
        p, scores = data["target"], blocks["alpha"] * torch.eye(system.context + 1, dtype=torch.float64)[0]
        attention = scores.softmax(0)
        head = attention[0] * blocks["beta"] + attention[1:].sum() * system.copying * data["frequency"]
        return (p * (p.log() - (p.log() + head).log_softmax(-1))).sum(-1).mean()

    compare_with_autograd(system, loss_of)


@pytest.mark.parametrize("attention_map", ["softmax", "relu"])
@pytest.mark.parametrize("settings", [{}, {"tokens": 3, "triggers": 1, "length": 2, "sequences": 1}])
def test_the_gradient_of_the_whole_model_is_that_of_autograd(attention_map: Any, settings: dict[str, Any]) -> None:
    """Position by position."""

    def loss_of(blocks: Any, data: Any) -> Any:
        U, Z, r, W = (blocks[name] for name in ("bigram", "scores", "previous", "values"))
        terms = []
        for x in data["tokens"]:
            for i in range(1, len(x) - 1):
                scores = torch.stack([Z[x[i], x[j]] + (r[x[i]] if j == i - 1 else 0) for j in range(i + 1)])
                weights = scores.softmax(0) if attention_map == "softmax" else (1 + scores).relu() / (i + 1)
                terms.append(torch.nn.functional.cross_entropy(U[x[i]] + weights @ W[x[: i + 1]], x[i + 1]))
        return torch.stack(terms).mean()

    compare_with_autograd(BigramBackcopy(attention_map=attention_map, **settings), loss_of)


def test_the_reduction_keeps_its_digits_at_late_times() -> None:
    """At alpha = 69 the excess loss is about 1e-58: loss and gradient against 120 digits."""
    system = Sink()
    data = system.data(SEEDS[:1], None)
    p, c = data["target"][0], data["frequency"][0]
    beta = -1e-28 * np.arange(1.0, 9.0)
    state = {"alpha": torch.tensor([69.0], dtype=torch.float64), "beta": torch.tensor(beta)[None]}
    gradient, loss = system.gradient(state, {name: torch.tensor(value) for name, value in data.items()})
    with mpmath.workdps(120):
        b = 1 / (1 + system.context * mpmath.exp(-69))
        exact, slope = mpmath.mpf(0), mpmath.mpf(0)
        target = [mpmath.mpf(float(v)) for v in p]
        target = [v / sum(target) for v in target]
        for own in c:
            delta = [
                b * mpmath.mpf(x) + (1 - b) * system.copying * mpmath.mpf(float(f))
                for x, f in zip(beta, own, strict=True)
            ]
            weights = [v * mpmath.exp(d) for v, d in zip(target, delta, strict=True)]
            exact += mpmath.log(sum(weights)) - sum(v * d for v, d in zip(target, delta, strict=True))
            rho = [v - w / sum(weights) for v, w in zip(target, weights, strict=True)]
            moved = [mpmath.mpf(x) - system.copying * mpmath.mpf(float(f)) for x, f in zip(beta, own, strict=True)]
            slope += b * (1 - b) * sum(r * m for r, m in zip(rho, moved, strict=True))
        exact, slope = exact / len(c), slope / len(c)
    assert abs(loss.item() / float(exact) - 1) < 1e-12
    assert abs(gradient["alpha"].item() / float(slope) - 1) < 1e-12


def test_triggers_copy_and_the_others_follow_the_chain() -> None:
    """Successors of one token over 3,000 sequences against its row of the chain; six standard errors."""
    system = BigramBackcopy(sequences=3000, length=10)
    x = system.data(SEEDS[:1], 5)["tokens"][0]
    now, before, after = x[:, 1:-1], x[:, :-2], x[:, 2:]
    assert (x[:, 0] == system.tokens).all()
    assert (after[now < system.triggers] == before[now < system.triggers]).all()
    p = system.transitions(0)[4]
    found = np.bincount(after[now == 4], minlength=system.tokens)
    assert (np.abs(found - found.sum() * p) < 6 * np.sqrt(found.sum() * p * (1 - p)) + 1).all()
    assert not np.array_equal(x, system.data(SEEDS[:1], 6)["tokens"][0])
    with pytest.raises(InputError, match="leave at least two others"):
        BigramBackcopy(tokens=4, triggers=3)


def test_attention_on_the_start_token_is_that_of_each_query_token() -> None:
    """Token 3 attends to the start token alone, the others to all positions up to their own alike."""
    system = BigramBackcopy()
    parameters, data = dict(system.start(SEEDS)), system.data(SEEDS, None)
    parameters["scores"][:, 3, -1] = 50.0
    found = attention_on_start.compute(ss.State(system, parameters, data, np.zeros(3)))
    np.testing.assert_allclose(found[:, 3], 1.0)
    places = np.arange(2, system.length + 2)  # the start token among that many
    for run, token in ((0, 2), (1, 5)):
        occurs = data["tokens"][run, :, 1:-1] == token
        np.testing.assert_allclose(found[run, token], (occurs / places).sum() / occurs.sum())
