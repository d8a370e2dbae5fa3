"""Eqs. 10, 98, 100 and 110 to 117 against the engine's own gradients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import scansnap as ss
from scansnap import theory
from scansnap.runtime.errors import InputError
from tests.dynamics.reference import population_gradients


def state(classes: ss.SequenceClasses, scale: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attention logits (Q x M), directions and the decoder that the theory says belongs to them."""
    rng = np.random.default_rng(seed)
    z = scale * rng.normal(size=(len(classes.queries), classes.vocab_size))
    rows = z[np.searchsorted(np.sort(classes.queries), classes.query)]
    f = theory.directions(classes.probs, rows)
    w = theory.decoder_logits(20.0, next_token=classes.next_token, vocab_size=classes.vocab_size, lr_y=0.5)
    return z, f, theory.decoder(f, w)


@pytest.mark.parametrize("classes", [ss.syn_medium(num_query=3), ss.single_common(num_classes=4, vocab_size=60)])
def test_eq_10_is_the_engine_s_gradient(classes: ss.SequenceClasses) -> None:
    z, f, y = state(classes, 0.3)
    order = np.argsort(np.argsort(classes.queries))
    _, dz = population_gradients(classes, y, z[order])
    iota, beta = theory.backpropagated_gradient(theory.overlaps(f), vocab_size=classes.vocab_size)
    del iota  # its term is projected away
    gamma = theory.speed(20.0, vocab_size=classes.vocab_size, num_classes=1, lr_y=0.5)
    velocity = theory.logits_velocity(f, beta, query=classes.query, speed=gamma, lr_z=1.0, weights=classes.weights)
    np.testing.assert_allclose(velocity, dz[np.argsort(classes.queries)], atol=1e-10 * np.abs(dz).max())
    published = theory.logits_velocity(f, beta, query=classes.query, speed=gamma, lr_z=1.0, form="published")
    np.testing.assert_allclose(published, classes.num_classes * velocity, rtol=1e-9)  # the missing P(n) = 1/K

    xi = theory.drive(theory.overlaps(f), beta, speed=gamma)
    rows = theory.distinct_velocity(f, xi, lr_z=1.0)
    for n in range(classes.num_classes):
        ids = classes.distinct_tokens(n)
        of_class = velocity[np.searchsorted(np.sort(classes.queries), classes.query[n]), ids]
        np.testing.assert_allclose(of_class, rows[n, ids], rtol=1e-8)  # Eq. 98
        assert (of_class > 0).all()
    if len(classes.common_tokens) == 1:
        token = int(classes.common_tokens[0])
        single = theory.single_common_velocity(f, xi, token, query=classes.query, lr_z=1.0)
        np.testing.assert_allclose(single, velocity[:, token], rtol=1e-8)  # Eq. 100
        assert (single < 0).all()


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

    apart = [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]  # no overlap, no drive
    assert set(theory.fates(apart, query=[9, 9])[0]) == {"unsaid"}
    # Query 8's class has the common token and nothing else: f = 1 there, and the token cannot move.
    lone = theory.fates([[0.5, 0.5], [0.0, 1.0]], query=[7, 8])
    assert lone.tolist() == [["gains", "loses"], ["absent", "unsaid"]]


def test_symmetry() -> None:
    many = ss.synthetic(num_query=1, next_per_query=3)
    (line,) = theory.fates(many.probs, query=many.query)
    assert set(line[many.common_tokens]) == {"loses"}
    assert theory.symmetry(many.probs, query=many.query).holds
    assert not theory.symmetry(ss.syn_small().probs, query=ss.syn_small().query).single_query
    skewed = many.probs.copy()
    skewed[0, 0] *= 2
    skewed[0] /= skewed[0].sum()
    assert not theory.symmetry(skewed, query=many.query).shared_common
    assert not theory.symmetry(skewed, query=many.query).matching_distinct
    assert set(theory.fates(skewed, query=many.query)[0, many.common_tokens]) == {"unsaid"}


def test_tf_idf_gives_common_tokens_nothing() -> None:
    weights = theory.tf_idf(ss.syn_small().probs)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights[:, :10] == 0).all()
    assert weights[0, 19] == pytest.approx(10 * weights[0, 10])


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InputError, match="give a matrix"):
        theory.token_kinds([0.5, 0.5])
    with pytest.raises(InputError, match="prob holds 0"):
        theory.relative_gain(0.0, 0.5)


@pytest.mark.parametrize(
    ("probs", "query", "wanted"),
    [
        ([[0.5, 0.3, 0.2, 0, 0], [0.5, 0, 0, 0.2, 0.3]], [7, 7], (True, True, True)),  # in any order
        ([[0.5, 0.3, 0.2, 0, 0], [0.5, 0, 0, 0.2, 0.3]], [7, 8], (False, True, True)),
        ([[0.5, 0.3, 0.2, 0, 0], [0.5, 0, 0, 0.4, 0.1]], [7, 7], (True, False, True)),
        ([[0.5, 0.3, 0.2, 0], [0.5, 0, 0, 0.5]], [7, 7], (True, False, True)),  # not as many
        ([[0.2, 0.3, 0.5, 0], [0.3, 0.2, 0, 0.5]], [7, 7], (True, True, False)),
        ([[0.2, 0.3, 0.5, 0], [0.1, 0.4, 0, 0.5]], [7, 7], (True, True, False)),
        ([[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]], [7, 7, 7], (True, False, False)),
    ],
)
def test_each_condition_of_corollary_2_is_its_own(probs: list, query: list, wanted: tuple) -> None:
    symmetry = theory.symmetry(probs, query=query)
    assert (symmetry.single_query, symmetry.matching_distinct, symmetry.shared_common) == wanted
    assert symmetry.holds == all(wanted)


def test_a_single_common_token_loses_whatever_else_there_is() -> None:
    """Theorem 2 b needs no symmetry: distinct tokens that differ in number and probability."""
    assert theory.fates([[0.5, 0.5, 0, 0], [0.3, 0, 0.6, 0.1]], query=[7, 7]).tolist() == [["loses"] + 3 * ["gains"]]
    two = theory.fates([[0.4, 0.1, 0.5, 0, 0], [0.1, 0.4, 0, 0.4, 0.1]], query=[7, 7])
    assert two.tolist() == [["unsaid", "unsaid", "gains", "gains", "gains"]]
    apart = theory.fates([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]], query=[7, 7, 8])
    assert apart.tolist() == [["unsaid", "unsaid", "absent"], ["absent", "absent", "unsaid"]]


def test_a_class_without_the_common_token_does_not_move_it() -> None:
    f = theory.directions([[0.5, 0.5, 0, 0], [0.4, 0, 0.6, 0], [0, 0, 0, 1.0]])
    xi = np.array([0.3, 0.2, 5.0])
    rates = theory.single_common_velocity(f, xi, 0, query=[8, 7, 7], lr_z=0.1, weights=[0.5, 0.3, 0.2])
    wanted = [-0.1 * 0.3 * (1 - f[1, 0] ** 2) * 0.2, -0.1 * 0.5 * (1 - f[0, 0] ** 2) * 0.3]
    np.testing.assert_allclose(rates, wanted, rtol=1e-14)
