"""Closed forms pinned to their formulas, in settings where every factor and sign of them matters."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap import theory
from scansnap.runtime.errors import InputError
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
        "distinct_probs": [0.1, 0.3],
        "common_probs": [0.2, 0.4],
        "num_classes": 6,
        "vocab_size": 20,
        "lr_y": 1e-4,
        "lr_z": 1e-4,
        "decoder_gradient": gradient,
        "atol": 1e-20,
    }
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


def test_published_deviation_of_the_residual_changes_once() -> None:
    """eta_Y Delta/3 before Nbar = 2 (1 + omega_1) ln M / eta_Y + Delta, Delta/Nbar from there on."""
    size, rate, radius = 1000, 0.5, 12.0
    change = 2 * (1 + theory.growth_crossings(vocab_size=size).omega_1) * np.log(size) / rate + radius
    mean = change * np.array([0.5, 1 - 1e-9, 1 + 1e-9, 2])
    published = theory.residual_deviation(mean, radius, vocab_size=size, lr_y=rate, form="published")
    early, late = rate * radius / 3, radius / mean
    np.testing.assert_allclose(published, [early, early, late[2], late[3]], rtol=1e-14)


@pytest.mark.parametrize(("mean", "radius"), [(20.0, 12.0), (20.0, 0.0), (2.0, 500.0), (500.0, 100.0)])
def test_deviation_of_the_residual_is_the_larger_of_both_ends(mean: float, radius: float) -> None:
    """Counts do not fall below zero, so that the upper end can be the larger one."""
    h = theory.decoder_growth([max(mean - radius, 0), mean, mean + radius], vocab_size=100, lr_y=0.5)
    residual = theory.residual_size(h, vocab_size=100)
    deviation = theory.residual_deviation(mean, radius, vocab_size=100, lr_y=0.5)
    assert deviation == pytest.approx(np.abs(residual / residual[1] - 1).max(), rel=1e-12, abs=1e-15)


def test_radii_are_those_stated() -> None:
    """Lemmas 10, 12 and 18 at N = 30, K = 3, T = 30."""
    assert theory.count_radius(30, failure=0.1) == pytest.approx(np.sqrt(15 * np.log(20)) + 1, rel=1e-14)
    assert theory.count_radius(30, failure=0.1, form="loose") == pytest.approx(np.sqrt(30 * np.log(20)), rel=1e-14)
    assert theory.count_radius(30, failure=0.1, form="remark") == 9  # of 8.31
    assert theory.growth_deviation(8.0, 2.0) == 0.25
    wanted = 3 / np.sqrt(30) * np.sqrt(np.log(30))
    assert theory.logits_deviation(30, num_classes=3, failure=0.1) == pytest.approx(wanted, rel=1e-14)
    assert theory.frequency_radius(30, failure=0.1) == pytest.approx(np.sqrt(np.log(20) / 58), rel=1e-14)


def test_bounds_of_the_diagonal_take_the_least_and_the_largest_eigenvalue() -> None:
    """Eq. 93 for E with the eigenvalues 0.5, -0.3 and -0.2."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    e = turn @ np.diag([-0.3, 0.5, -0.2]) @ turn.T
    np.testing.assert_allclose(theory.eigenvalues(e), [0.5, -0.3, -0.2], rtol=1e-12)
    assert theory.diagonal_bound(e) == pytest.approx(0.2**2 / 1.5, rel=1e-12)
    assert theory.diagonal_bound(e, form="published") == pytest.approx(0.2**2 / 0.5, rel=1e-12)


def test_bounds_of_the_overlaps_are_those_stated() -> None:
    """Lemmas 13, 15 and 17 with |lambda_1| = 0.5; beyond one they say nothing."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    e = turn @ np.diag([-0.3, 0.5, -0.2]) @ turn.T
    inverse = np.eye(3) - np.linalg.inv(np.eye(3) + e)
    bounds = theory.overlap_bounds(e)
    assert bounds.largest_overlap == pytest.approx(np.abs(e).max(), rel=1e-12)
    assert bounds.largest_inverse == pytest.approx(0.3 / 0.7, rel=1e-12)  # of lambda/(1 + lambda)
    assert bounds.largest_diagonal == pytest.approx(np.diag(inverse).max(), rel=1e-12)
    assert bounds.largest_difference == pytest.approx(np.abs(inverse - e).max(), rel=1e-12)
    most = bounds.largest_overlap_most, bounds.largest_inverse_most, bounds.largest_difference_most
    np.testing.assert_allclose(most, [0.5, 1.0, 0.5], rtol=1e-12)
    strong = theory.overlap_bounds([[0.0, 0.6, 0.6], [0.6, 0.0, 0.6], [0.6, 0.6, 0.0]])
    assert strong.largest_overlap_most == pytest.approx(1.2, rel=1e-12)
    assert (strong.largest_inverse_most, strong.largest_difference_most) == (np.inf, np.inf)
    assert bounds.largest_diagonal_most == strong.largest_diagonal_most == 0


def test_growth_factors_have_the_bounds_of_eq_12() -> None:
    """exp(2 f^2 B) and exp(2 B) with B = P(n) times the bound."""
    least, most = theory.growth_factor_bounds([0.4, 0.8], 0.3, weight=[0.5, 0.2])
    np.testing.assert_allclose(least, np.exp(2 * 0.09 * np.array([0.2, 0.16])), rtol=1e-14)
    np.testing.assert_allclose(most, np.exp(2 * np.array([0.2, 0.16])), rtol=1e-14)


def test_a_companion_that_is_ahead_cannot_have_finished() -> None:
    """r = -1/2: with chi = 2 the token ahead would have grown without bound; below that it has 1/chi' = 2/chi - 1."""
    assert np.isnan(theory.companion_growth(-0.5, 2.0))
    assert theory.companion_growth(-0.5, 1.6) == pytest.approx(4.0, rel=1e-14)


def test_late_times_are_when_gamma_outgrows_the_constant() -> None:
    """At t = K/(M eta_Y) exp(sqrt(nu C_0/(2 K))) 4 Gamma, by its leading order 2 K/nu ln(M eta_Y t/K)^2, is C_0."""
    for constant in (0.7, 20.0):
        t = theory.late_time(**SETTING, lr_z=0.05, constant=constant)
        log_time = np.log(1000 * 0.5 * t / 10)
        assert 2 * 10 / (0.5 / 0.05) * log_time**2 == pytest.approx(constant, rel=1e-12)
    published = theory.late_time(**SETTING, lr_z=0.05, form="published")
    assert published == pytest.approx(np.exp(1 / np.sqrt(2 * 10)) / (1000 * 0.5), rel=1e-14)
    assert theory.late_time(**SETTING, lr_z=1e-6, constant=1e3) == np.inf


def test_phases_begin_and_end_where_they_are_said_to() -> None:
    """Eq. 14 with h = eta_Y t/(M K) up to t'_0 and ln(M eta_Y t/K)/M from t_0 on, and nothing in between."""
    more = {"lr_z": 0.05, "constant": 2.0}
    first, second = theory.scan_end(**SETTING), theory.snap_start(**SETTING)
    omega_1 = theory.growth_crossings(vocab_size=1000).omega_1
    assert second / first == pytest.approx(2 * (1 + omega_1), rel=1e-14)
    t = np.array([0.0, first / 3, first * (1 - 1e-12), first * (1 + 1e-12), second * (1 - 1e-12), second * 3])
    bound = theory.growth_bound_phases(t, **SETTING, **more)
    assert np.isnan(bound).tolist() == [False, False, False, True, True, False]
    h = np.array([0, 0.5 * t[1] / 10_000, 0.5 * t[2] / 10_000, np.nan, np.nan, np.log(1000 * 0.5 * t[5] / 10) / 1000])
    accumulated = 0.05 / 0.5 * 10 * 999**2 * h**2 / 2
    np.testing.assert_allclose(bound, np.log(1 + 4 * accumulated / 2) / 4, rtol=1e-12)
    alone = {**SETTING, "num_classes": 1}
    assert np.isfinite(theory.growth_bound_phases(theory.snap_start(**alone), **alone, **more))  # t_0 belongs to it
    assert np.isnan(theory.growth_bound_late(10 / (1000 * 0.5), **SETTING, **more))  # ln(M eta_Y t/K) = 0
    assert np.isfinite(theory.growth_bound_late(1.1 * 10 / (1000 * 0.5), **SETTING, **more))


def test_the_shift_of_remark_2_starts_where_it_is_said_to() -> None:
    omega_1 = theory.growth_crossings(vocab_size=1000).omega_1
    assert theory.shift_start(vocab_size=1000, lr_y=0.5) == pytest.approx(4 * (1 + omega_1) * np.log(1000), rel=1e-14)
    published = theory.shift_start(vocab_size=1000, lr_y=0.5, form="published")
    assert published == pytest.approx(4 * np.log(1 + omega_1), rel=1e-14)


def test_remark_1_and_corollary_1_are_as_printed() -> None:
    times = np.array([3.0, 60.0])
    logits = theory.shared_overlap_logits(times, 0.2, next_token=[4, 1], vocab_size=7, num_classes=3, lr_y=0.5)
    h = theory.decoder_growth(times / 3, vocab_size=7, lr_y=0.5)
    zeta = theory.centered_one_hot([4, 1], vocab_size=7)
    np.testing.assert_allclose(logits, 0.8 * 6 * h[:, None, None] * zeta, rtol=1e-14)
    steps = theory.steps_to_reach(0.1, **SETTING, form="published")
    assert steps == pytest.approx(10 / (0.1 * 0.5) * np.log(1000 / 0.1), rel=1e-14)


def test_infinite_times_and_overflows() -> None:
    """A growth that exp cannot reach takes forever; a time that is too long is refused, even if others are not."""
    assert theory.growth_time(10.0, vocab_size=1000, lr_y=0.5) == np.inf
    assert theory.residual_size(10.0, vocab_size=1000) == 0
    with pytest.raises(InputError, match="overflows: give a smaller time"):
        theory.decoder_growth([1.0, 1e308], vocab_size=1000, lr_y=10)


def test_the_misfit_is_relative_to_the_gradient() -> None:
    """One class: the coefficient of f is f . g, and what is left over is measured in units of |g|, however small."""
    f = theory.directions([[0.5, 0.3, 0.2]])
    y = np.random.default_rng(0).normal(size=(3, 4))
    for scale in (1.0, 1e-8):
        measured = theory.measured_gradient(f, scale * y, next_token=[1])
        g = measured.gradient[0]
        left = np.linalg.norm(g - (f[0] @ g) * f[0]) / np.linalg.norm(g)
        assert left > 0.1
        assert measured.misfit[0] == pytest.approx(left, rel=1e-9)
    start = theory.measured_gradient(f, 0 * y, next_token=[1])
    assert (start.misfit[0], start.speed[0], start.drive[0], start.logit_gain[0]) == (0, 0, 0, 0)
    assert np.isnan(start.iota[0])
    assert start.beta[0, 0] == 0


def test_tokens_that_a_class_does_not_have_have_no_drive() -> None:
    f = theory.directions([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    y = np.random.default_rng(0).normal(size=(3, 4))
    measured = theory.measured_gradient(f, y, next_token=[1, 2])
    assert np.isnan(measured.token_drive).tolist() == [[False, False, True], [True, False, False]]
    along = (f * measured.gradient).sum(axis=1)
    np.testing.assert_allclose(measured.token_drive[0, 0], measured.gradient[0, 0] / f[0, 0] - along[0], rtol=1e-13)


def test_a_prior_multiplies_the_sizes_of_buckets() -> None:
    """w_g in proportion to sizes[g] exp(b_g), whatever is added to all b_g, also where exp(b_g) overflows."""
    parts = np.array([[0.2, 0.6, 0.1], [0.8, 0.4, 0.9]])
    bias = np.log([3.0, 1.0, 0.5])
    wanted = parts @ np.array([3.0, 2.0, 2.0]) / 7
    for shift in (0.0, 800.0, -800.0):
        np.testing.assert_allclose(theory.position_prior(parts, sizes=[1, 2, 4], bias=bias + shift), wanted, rtol=1e-12)
    steep = theory.position_prior(parts, sizes=[1, 2, 4], bias=[-800.0, 0.0, 800.0])
    np.testing.assert_allclose(steep, parts[:, 2], rtol=1e-12)


def test_the_reduction_starts_at_the_probabilities() -> None:
    """Z = 0 and uniform predictions: c = P, f . f' = sum q^2/|P|^2, residual (M-1)/M; times may start at zero."""
    flow = theory.symmetric_flow(
        [0.0, 2.0], distinct_probs=[0.1, 0.3], common_probs=[0.2, 0.4], num_classes=4, vocab_size=20, lr_y=0.5, lr_z=0.3
    )
    np.testing.assert_allclose(flow.distinct_attention[0], [0.1, 0.3], rtol=1e-14)
    np.testing.assert_allclose(flow.common_attention[0], [0.2, 0.4], rtol=1e-14)
    assert flow.overlap[0] == pytest.approx((0.04 + 0.16) / (0.01 + 0.09 + 0.04 + 0.16), rel=1e-14)
    assert flow.residual[0] == pytest.approx(19 / 20, rel=1e-14)
    assert (flow.distinct_logits[0] == 0).all()
    assert (flow.common_logits[0] == 0).all()
    only = theory.symmetric_flow(
        0.0, distinct_probs=[0.1, 0.3], common_probs=[0.2, 0.4], num_classes=4, vocab_size=20, lr_y=0.5, lr_z=0.3
    )
    assert only.times.tolist() == [0.0]
    assert only.overlap[0] == flow.overlap[0]


def test_centered_one_hots_lie_along_the_last_axis() -> None:
    tokens = np.array([[0, 2, 1], [3, 3, 0]])
    zeta = theory.centered_one_hot(tokens, vocab_size=4)
    np.testing.assert_allclose(zeta, (np.eye(4)[tokens] - 1 / 4) * 4 / 3, rtol=1e-15)
    np.testing.assert_array_equal(theory.centered_one_hot(2, vocab_size=4), zeta[0, 1])


def test_logits_of_tokens_that_a_class_does_not_have_change_nothing() -> None:
    wanted = theory.directions([[0.5, 0.5, 0.0]], [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(theory.directions([[0.5, 0.5, 0.0]], [0.0, 1.0, 1e4]), wanted)


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
