"""Token selection and next-token prediction: gradients against autograd, and what the flows converge to."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.papers.selection import theory
from scansnap.papers.selection.system import NextToken, TokenSelection
from tests.papers.autograd import compare_with_autograd

pytestmark = pytest.mark.rounding

SEEDS = np.arange(3, dtype=np.uint64)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 6), st.integers(1, 5), st.sampled_from(["p", "W"]))
def test_the_gradient_of_selection(seed: int, inputs: int, tokens: int, width: int, trained: Any) -> None:
    """f(X) = v'X' softmax(X W z) with X, v and labels in the place of keys and scores."""
    system = TokenSelection(inputs=inputs, tokens=tokens, width=width, trained=trained)

    def loss_of(blocks: Any, data: Any) -> Any:
        block, losses = blocks[trained], []
        for keys, query, scores in zip(data["keys"], data["query"], data["scores"], strict=True):
            logits = keys @ block @ query if trained == "W" else keys @ block
            losses.append(torch.log(1 + torch.exp(-torch.softmax(logits, -1) @ scores)))
        return torch.stack(losses).mean()

    compare_with_autograd(system, loss_of, seed)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 8), st.integers(1, 5), st.booleans())
def test_the_gradient_of_next_token(seed: int, tokens: int, contexts: int, length: int, chain: bool) -> None:
    """The likelihood of the next token as attention to the positions that hold it, position by position."""
    system = NextToken(tokens=tokens, contexts=contexts, length=length, example="chain" if chain else "random")

    def loss_of(blocks: Any, data: Any) -> Any:
        z, total = data["basis"] @ blocks["u"], torch.zeros(())
        for counts, target, weight in zip(data["counts"], data["target"], data["weight"], strict=True):
            positions = torch.repeat_interleave(torch.arange(tokens), counts.long())
            attention = torch.softmax(z[positions], -1)
            total = total - weight * torch.log(attention[positions == target].sum())
        return total

    compare_with_autograd(system, loss_of, seed)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8))
def test_the_max_margin_solution_is_optimal(seed: int, rows: int, width: int) -> None:
    """The conditions of Karush, Kuhn and Tucker; where there is no solution, zero is in the hull of the rows."""
    rng = np.random.default_rng(seed)
    differences = rng.normal(size=(rows, width)) + rng.normal(size=width)
    least = rng.uniform(0.0, 2.0, rows)
    solution = theory.max_margin(differences, least=least)
    if solution is None:
        from scipy.optimize import linprog

        assert linprog(np.zeros(width), A_ub=-differences, b_ub=-least, bounds=(None, None)).status == 2
        return
    scale = 1 + np.abs(solution.multipliers).max()
    assert (solution.multipliers >= 0).all()
    assert (solution.margins >= least - 1e-9 * scale).all()
    assert np.abs(solution.multipliers * (solution.margins - least)).max() < 1e-9 * scale**2
    assert np.allclose(differences.T @ solution.multipliers, solution.direction)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9))
def test_components_and_their_direction(seed: int, tokens: int) -> None:
    """Components by reachability; the direction is constant on them and falls by at least 1 along other edges."""
    system = NextToken(tokens=tokens, contexts=6, length=3)
    data = system.data(np.array([seed], np.uint64), None)
    counts, target = data["counts"][0], data["target"][0]
    edges = np.eye(tokens, dtype=bool)
    for row, label in zip(counts, target, strict=True):
        edges[label] |= row > 0
    reach = np.linalg.matrix_power(edges.astype(float), tokens) > 0
    components = theory.priority_components(counts, target)
    assert (np.equal.outer(components, components) == (reach & reach.T)).all()
    direction = theory.component_direction(counts, target)
    falls = direction[:, None] - direction
    same = np.equal.outer(components, components)
    assert np.abs(falls[same]).max() == 0
    assert (falls[edges & ~same] >= 1 - 1e-9).all()
    basis = theory.component_basis(components)
    assert np.allclose(basis.T @ basis, np.eye(tokens))


def test_one_step_of_a_vector_block_has_the_length_of_the_rate() -> None:
    system = TokenSelection(example="plane", trained="p", start_y=1.0)
    p = ss.train(system, lr=0.1, steps=5, optimizer="normalized_sgd", record="p", dtype="float64")["p"].values[0]
    np.testing.assert_allclose(np.linalg.norm(np.diff(p, axis=0), axis=1), 0.1, rtol=1e-12)


def test_what_is_orthogonal_to_the_keys_stays_at_its_start() -> None:
    system = TokenSelection(inputs=2, tokens=3, width=4)
    run = ss.flow(system, lr=1.0, times=[0, 1e3, 1e9], seeds=range(2), record=("unmoved", "W"), progress=False)
    assert (run["unmoved"].values > 0.1).all()
    np.testing.assert_allclose(run["unmoved"], run["unmoved"][:, :1] * np.ones(3), rtol=1e-9)


def test_a_tie_of_margins_makes_the_offset_grow_like_ln_ln_t() -> None:
    """With a = 0 two constraints are active, one with a multiplier of zero."""
    times = np.array([1e6, 1e20, 1e60])
    system = TokenSelection(example="plane", trained="p", lean=0.0)
    s = -ss.flow(system, lr=1.0, times=times, record="p", progress=False)["p"].values[0, :, 0]
    gap = np.abs(s - np.log(np.log(times)))
    assert gap[-1] < 0.06
    assert (np.diff(gap) < 0).all()


@pytest.mark.parametrize(
    ("name", "variable", "change", "failing"),
    [
        ("selection", "path", np.negative, [0]),
        ("selection", "angle", np.negative, [2, 4]),
        ("selection", "angle", lambda values: values[:, ::-1], [2, 3]),
        ("selection", "cosine", np.negative, [5]),
        ("next_token", "z", np.negative, [0, 1]),
    ],
)
def test_trends_hold_and_notice_the_opposite(name: str, variable: str, change: Any, failing: list[int]) -> None:
    result = figure(name)
    wrong = result.dataset.assign(
        {variable: result.dataset[variable].copy(data=change(result.dataset[variable].values))}
    )
    trends = result.recipe.trends(wrong)
    assert all(result.trends[i].holds and not trends[i].holds for i in failing)


@cache
def figure(name: str) -> ss.FigureResult:
    return ss.figure(name, **({"num_seeds": 8} if name == "selection" else {}))
