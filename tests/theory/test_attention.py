"""Eqs. 10, 98, 100 and 110 to 117, fates of tokens, and the residual connection."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import scansnap as ss
from scansnap import theory
from tests.dynamics.reference import population_gradients
from tests.theory.test_sampling import uneven_classes

pytestmark = pytest.mark.rounding


def state(classes: ss.SequenceClasses, scale: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attention logits (Q x M), directions and the decoder that the theory says belongs to them."""
    rng = np.random.default_rng(seed)
    z = scale * rng.normal(size=(len(classes.queries), classes.vocab_size))
    rows = z[np.searchsorted(np.sort(classes.queries), classes.query)]
    f = theory.directions(classes.probs, rows)
    w = theory.decoder_logits(20.0, next_token=classes.next_token, vocab_size=classes.vocab_size, lr_y=0.5)
    return z, f, theory.decoder(f, w)


def test_theorem_3_follows_from_eq_98() -> None:
    """dz_l = c~_l^2 ds integrated numerically: gains and companions as stated, for an arbitrary drive."""
    p = np.array([0.1, 0.2, 0.3])
    start = np.array([0.4, 0.0, -0.1])
    end = solve_ivp(lambda s, z: (p * np.exp(z)) ** 2, (0, 3.0), start, rtol=1e-11, atol=1e-13).y[:, -1]
    chi = theory.growth_factor(end, start)
    for i in range(3):
        for j in range(3):
            before = theory.relative_gain(p[i], p[j], start[i], start[j])
            after = theory.relative_gain(p[i], p[j], end[i], end[j])
            assert theory.relative_gain_after(before, chi[i]) == pytest.approx(after, rel=1e-8, abs=1e-12)
            assert theory.companion_growth(before, chi[i]) == pytest.approx(chi[j], rel=1e-8)
    assert theory.dominant(p, start) == 2
    assert theory.dominant([0.2, 0.2]) is None
    assert np.isnan(theory.companion_growth(-0.5, 2.5))


def test_fates_are_per_query_and_need_overlap() -> None:
    single = ss.single_common(num_classes=3, vocab_size=40)
    (line,) = theory.fates(single.probs, query=single.query)
    assert set(line[single.common_tokens]) == {"loses"}
    assert set(line[single.distinct_tokens(0)]) == {"gains"}
    assert set(line[single.next_token]) == {"absent"}

    small = ss.syn_small()  # two queries: Corollary 2 does not apply, and a query's row knows its own class only
    first, second = theory.fates(small.probs, query=small.query)
    assert set(first[small.common_tokens]) == {"unsaid"}
    assert set(first[small.distinct_tokens(0)]) == {"gains"}
    assert set(second[small.distinct_tokens(0)]) == {"absent"}

    disjoint = [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]  # no overlap, no drive
    assert set(theory.fates(disjoint, query=[9, 9])[0]) == {"unsaid"}
    # Query 8's class has the common token and nothing else: f = 1 there, and the token cannot move.
    lone = theory.fates([[0.5, 0.5], [0.0, 1.0]], query=[7, 8])
    assert lone.tolist() == [["gains", "loses"], ["absent", "unsaid"]]


def test_a_class_without_the_common_token_does_not_move_it() -> None:
    f = theory.directions([[0.5, 0.5, 0, 0], [0.4, 0, 0.6, 0], [0, 0, 0, 1.0]])
    xi = np.array([0.3, 0.2, 5.0])
    rates = theory.single_common_velocity(f, xi, 0, query=[8, 7, 7], lr_z=0.1, weights=[0.5, 0.3, 0.2])
    wanted = [-0.1 * 0.3 * (1 - f[1, 0] ** 2) * 0.2, -0.1 * 0.5 * (1 - f[0, 0] ** 2) * 0.3]
    np.testing.assert_allclose(rates, wanted, rtol=1e-14)


def test_velocities_are_autograd_s() -> None:
    """Eqs. 10, 98 and 100 with equal and unequal P(n) against autograd of the population loss."""
    plain = ss.single_common(num_classes=4, num_distinct=3, vocab_size=60)
    single = ss.SequenceClasses(
        probs=plain.probs,
        query=[40, 41, 40, 41],
        next_token=plain.next_token,
        vocab_size=60,
        weights=[0.4, 0.3, 0.2, 0.1],
    )
    for classes in (uneven_classes(), single, plain, ss.syn_medium(num_query=3)):
        size, weights = classes.vocab_size, classes.weights
        z, f, y = state(classes, 0.3)
        order = np.argsort(classes.queries)
        _, dz, _ = population_gradients(classes, y, z[np.argsort(order)])
        _, beta = theory.backpropagated_gradient(theory.overlaps(f), vocab_size=size)
        gamma = theory.speed(20.0, vocab_size=size, num_classes=1, lr_y=0.5)
        velocity = theory.logits_velocity(f, beta, query=classes.query, speed=gamma, lr_z=1.0, weights=weights)
        np.testing.assert_allclose(velocity, dz[order], atol=1e-10 * np.abs(dz).max())
        if np.ptp(weights) < 1e-12:
            published = theory.logits_velocity(f, beta, query=classes.query, speed=gamma, lr_z=1.0, form="published")
            np.testing.assert_allclose(published, classes.num_classes * velocity, rtol=1e-9)  # the missing P(n) = 1/K

        xi = theory.drive(theory.overlaps(f), beta, speed=gamma)
        rows = theory.distinct_velocity(f, xi, lr_z=1.0, weights=weights)
        row_of = np.searchsorted(np.sort(classes.queries), classes.query)
        for n in range(classes.num_classes):
            ids = classes.distinct_tokens(n)
            np.testing.assert_allclose(rows[n, ids], dz[order][row_of[n], ids], rtol=1e-8)
            assert (rows[n, ids] > 0).all()
        if classes in (single, plain):
            token = int(classes.common_tokens[0])
            common = theory.single_common_velocity(f, xi, token, query=classes.query, lr_z=1.0, weights=weights)
            np.testing.assert_allclose(common, dz[order][:, token], rtol=1e-8)
            assert (common < 0).all()


def test_a_query_that_occurs_in_its_context_lengthens_the_residual() -> None:
    """The chain of projections of `residual_velocity`, class by class, with queries among the contextual tokens."""
    f = theory.directions(np.random.default_rng(0).uniform(0.1, 1.0, (3, 5)))
    query, weights = [1, 3, 1], [0.2, 0.3, 0.5]
    sums = f + np.eye(5)[query]
    v = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    _, beta = theory.backpropagated_gradient(theory.overlaps(v), vocab_size=20)
    wanted = np.zeros((2, 5))
    for n, row in enumerate([0, 1, 0]):
        off_f, off_v = (np.eye(5) - np.outer(unit, unit) for unit in (f[n], v[n]))
        pull = -off_f @ off_v @ (beta[n] @ v) / np.linalg.norm(sums[n])
        wanted[row] += 0.7 * weights[n] * f[n] * pull
    velocity = theory.residual_velocity(f, query, vocab_size=20, weights=weights, speed=1.0, lr_z=0.7)
    np.testing.assert_allclose(velocity, wanted, rtol=1e-12)
