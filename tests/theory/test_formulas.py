"""Closed forms pinned to their formulas, in settings where every factor and sign of them matters."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap import theory
from scansnap.base.errors import InputError
from tests.dynamics.reference import population_gradients
from tests.theory.test_attention import state
from tests.theory.test_finite_length import uneven_classes

SETTING = {"vocab_size": 1000, "num_classes": 10, "lr_y": 0.5}


@pytest.mark.parametrize("form", ["exact", "published"])
@pytest.mark.parametrize("constant", [0.05, 7.0])
def test_the_late_bound_is_the_limit_of_the_bound(form: str, constant: float) -> None:
    """At t = 1e250, where what the expansion leaves out is 1/4 ln(1 + C_0/(4 Gamma)), below 1e-5."""
    more = {"lr_z": 0.05, "constant": constant, "form": form}
    late = theory.growth_bound_late(1e250, **SETTING, **more)
    assert late == pytest.approx(theory.growth_bound(1e250, **SETTING, **more), abs=1e-5)
    assert late == pytest.approx(theory.growth_bound_phases(1e250, **SETTING, **more), abs=1e-5)


def test_bounds_of_the_speed_are_those_stated() -> None:
    """Scanning: x/4 and x, x = eta_Y t/K + 1/M.  Snapping: (M-1)^2/M ln(S/2)/(2S) and (M-1)^2/M 2 ln(S)/S."""
    t = np.array([5.0, 80.0, 400.0, 1e5])
    x = 0.5 * t / 10 + 1 / 1000
    scanning = theory.speed_scanning(t, **SETTING)
    np.testing.assert_allclose(scanning.least, x / 4, rtol=1e-13)
    np.testing.assert_allclose(scanning.most, x, rtol=1e-13)
    total = 1000 * 0.5 * t / 10 + 1
    snapping = theory.speed_snapping(t, **SETTING)
    np.testing.assert_allclose(snapping.least, 999**2 / 1000 * np.log(total / 2) / (2 * total), rtol=1e-13)
    np.testing.assert_allclose(snapping.most, 999**2 / 1000 * 2 * np.log(total) / total, rtol=1e-13)
    for bounds, part in ((scanning, t < theory.scan_end(**SETTING)), (snapping, t > theory.snap_start(**SETTING))):
        assert part.sum() == 2
        gamma = theory.speed(t, **SETTING)
        assert ((bounds.least <= gamma) & (gamma <= bounds.most))[part].all()


def test_the_largest_diagonal_is_that_of_the_least_overlapping_class() -> None:
    e = np.array([[0.0, 0.4, 0.1], [0.4, 0.0, 0.0], [0.1, 0.0, 0.0]])
    diagonal = np.diag(np.eye(3) - np.linalg.inv(np.eye(3) + e))
    assert theory.overlap_bounds(e).largest_diagonal == pytest.approx(diagonal[2], rel=1e-12)
    assert diagonal[2] > 10 * diagonal[0]  # both are negative
    alone = np.array([[0.0, 0.4, 0.0], [0.4, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert theory.overlap_bounds(alone).largest_diagonal == 0  # a class without overlap


def test_a_rare_common_token_has_no_tf_idf_weight() -> None:
    """However rare in one class, a token of all classes has ln(K/|Omega(l)|) = 0."""
    weights = theory.tf_idf([[1e-6, 0.5, 0.499999, 0.0], [0.5, 0.3, 0.0, 0.2], [0.5, 0.0, 0.4, 0.1]])
    assert (weights[:, 0] == 0).all()
    np.testing.assert_allclose(weights[1], [0, 0.6, 0, 0.4], rtol=1e-12)  # two of three classes have each of them


def test_velocities_weigh_classes_by_their_probability() -> None:
    """Eqs. 10, 98 and 100 with unequal P(n) against autograd of the population loss."""
    plain = ss.single_common(num_classes=4, num_distinct=3, vocab_size=60)
    single = ss.SequenceClasses(
        probs=plain.probs,
        query=[40, 41, 40, 41],
        next_token=plain.next_token,
        vocab_size=60,
        weights=[0.4, 0.3, 0.2, 0.1],
    )
    for classes in (uneven_classes(), single):
        size, weights = classes.vocab_size, classes.weights
        z, f, y = state(classes, 0.3)
        order = np.argsort(classes.queries)
        _, dz = population_gradients(classes, y, z[np.argsort(order)])
        _, beta = theory.backpropagated_gradient(theory.overlaps(f), vocab_size=size)
        gamma = theory.speed(20.0, vocab_size=size, num_classes=1, lr_y=0.5)
        velocity = theory.logits_velocity(f, beta, query=classes.query, speed=gamma, lr_z=1.0, weights=weights)
        np.testing.assert_allclose(velocity, dz[order], atol=1e-10 * np.abs(dz).max())

        xi = theory.drive(theory.overlaps(f), beta, speed=gamma)
        rows = theory.distinct_velocity(f, xi, lr_z=1.0, weights=weights)
        row_of = np.searchsorted(np.sort(classes.queries), classes.query)
        for n in range(4):
            ids = classes.distinct_tokens(n)
            np.testing.assert_allclose(rows[n, ids], dz[order][row_of[n], ids], rtol=1e-8)
        if classes is single:
            token = int(classes.common_tokens[0])
            common = theory.single_common_velocity(f, xi, token, query=classes.query, lr_z=1.0, weights=weights)
            np.testing.assert_allclose(common, dz[order][:, token], rtol=1e-8)


def test_products_of_centered_one_hots_have_their_values() -> None:
    """q_1 = M/(M-1) and q_0 = -M/(M-1)^2: 5/4 and -5/16 for five tokens."""
    q_1, q_0 = theory.centered_products(vocab_size=[5, 2])
    np.testing.assert_allclose(q_1, [1.25, 2.0], rtol=1e-15)
    np.testing.assert_allclose(q_0, [-0.3125, -2.0], rtol=1e-15)


def test_no_step_is_needed_for_a_residual_above_the_first() -> None:
    """|e_n - alpha_n| starts at sqrt((M-1)/M); from there on up the time is zero, below it is not."""
    first = np.sqrt(999 / 1000)
    assert theory.residual_norm(0.0, **SETTING) == pytest.approx(first, rel=1e-14)
    above = [first * (1 + 1e-12), 1.0, np.sqrt(1000 / 999), 1.5, 100.0]
    np.testing.assert_array_equal(theory.steps_to_reach(above, **SETTING), 0)
    soon = theory.steps_to_reach(first * (1 - 1e-6), **SETTING)
    assert soon == pytest.approx(1e-6 * 10 * 1000 / 0.5, rel=1e-2)  # it falls by eta_Y/(K M) per step at first


@pytest.mark.parametrize("gradient", ["true", "modified"])
def test_common_tokens_move_in_proportion_to_the_classes_of_their_query(gradient: str) -> None:
    """Early on z of a common token is k times that of one class per query; distinct tokens do not depend on k."""
    arguments = {
        "distinct_probs": [0.1, 0.3], "common_probs": [0.2, 0.4], "num_classes": 6, "vocab_size": 20,
        "lr_y": 1e-4, "lr_z": 1e-4, "decoder_gradient": gradient, "atol": 1e-20,
    }  # fmt: skip
    single, double, all_six, unsaid = (
        theory.symmetric_flow([1.0, 3.0], **arguments, classes_per_query=k) for k in (1, 2, 6, None)
    )
    assert (np.abs(single.common_logits) > 0).all()
    np.testing.assert_allclose(double.common_logits, 2 * single.common_logits, rtol=1e-3)
    np.testing.assert_allclose(all_six.common_logits, 6 * single.common_logits, rtol=1e-3)
    np.testing.assert_allclose(all_six.distinct_logits, single.distinct_logits, rtol=1e-3)
    np.testing.assert_array_equal(unsaid.common_logits, all_six.common_logits)
    with pytest.raises(InputError, match="classes_per_query is 4: it must divide the number of classes, 6"):
        theory.symmetric_flow([1.0], **arguments, classes_per_query=4)
