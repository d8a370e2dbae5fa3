"""Theorem 4's closed forms against quadrature and against the equations that they solve."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq

from scansnap import theory
from scansnap.runtime.errors import InputError

SETTING = {"vocab_size": 1000, "num_classes": 10, "lr_y": 0.5}


def test_accumulated_speed_is_the_integral_of_speed() -> None:
    for t in (3.0, 100.0, 5000.0):
        wanted, _ = quad(lambda x: 0.05 * theory.speed(x, **SETTING), 0, t, epsrel=1e-10, limit=500)
        assert theory.accumulated_speed(t, **SETTING, lr_z=0.05) == pytest.approx(wanted, rel=1e-8)


def test_growth_bound_solves_theorem_4() -> None:
    """dz/dt = -eta_Z gamma e^(4z)/C_0 integrated numerically; B_n = -z, and B_n(0) = 0."""
    constant = 1.3
    times = np.array([10.0, 100.0, 1000.0, 10_000.0])
    solution = solve_ivp(
        lambda t, z: -0.05 * theory.speed(t, **SETTING) * np.exp(4 * z) / constant,
        (0, times[-1]),
        [0.0],
        t_eval=times,
        rtol=1e-10,
        atol=1e-13,
    )
    exact = theory.growth_bound(times, **SETTING, lr_z=0.05, constant=constant)
    np.testing.assert_allclose(exact, -solution.y[0], rtol=1e-7)
    np.testing.assert_allclose(theory.common_logit(times, **SETTING, lr_z=0.05, constant=constant), -exact)
    assert theory.growth_bound(0.0, **SETTING, lr_z=0.05, constant=constant) == 0
    published = theory.growth_bound(times, **SETTING, lr_z=0.05, constant=constant, form="published")
    np.testing.assert_allclose(published - exact, np.log(constant) / 4)  # the lost constant
    poster = theory.growth_bound(times, **SETTING, lr_z=0.05, constant=constant, form="poster")
    np.testing.assert_allclose(poster, 4 * published)


def test_the_two_phases_approach_the_whole() -> None:
    more = {"lr_z": 0.5, "constant": 1.0}
    early, late = 20.0, 1e40
    for t in (early, late):
        whole = theory.growth_bound(t, **SETTING, **more)
        assert theory.growth_bound_phases(t, **SETTING, **more) == pytest.approx(whole, rel=0.02)
    assert theory.growth_bound_late(late, **SETTING, **more) == pytest.approx(whole, rel=0.01)
    assert np.isnan(theory.growth_bound_phases(200.0, **SETTING, **more))  # between t'_0 = 138 and t_0 = 370
    assert np.isnan(theory.growth_bound_late(1e-3, **SETTING, **more))


def test_bound_at_the_snap_depends_on_the_ratio_alone() -> None:
    """Appendix F (2): B_n(t_0) is a function of K, M and nu = eta_Y/eta_Z."""
    at_snap = [
        theory.growth_bound(
            theory.snap_start(vocab_size=10_000, num_classes=10, lr_y=rate),
            vocab_size=10_000,
            num_classes=10,
            lr_y=rate,
            lr_z=rate,
            constant=1.0,
        )
        for rate in (1.0, 2.0, 8.0)
    ]
    np.testing.assert_allclose(at_snap, at_snap[0])


def test_phase_constant() -> None:
    assert theory.phase_constant(0.5, num_classes=10) == pytest.approx(1 / (9 * 0.25))
    assert theory.phase_constant(0.5, num_classes=10, form="published") == pytest.approx(1 / (10 * 0.25))
    e = np.full((4, 4), 0.3) - 0.3 * np.eye(4)
    f = np.linalg.cholesky(e + np.eye(4))  # rows with these overlaps
    beta = theory.backpropagated_gradient(theory.overlaps(f), vocab_size=10**9).beta
    drive = theory.drive(theory.overlaps(f), beta, speed=1.0)
    assert theory.phase_constant(0.3, num_classes=4, form="initial") == pytest.approx(1 / (drive[0] * 0.7), rel=1e-6)
    with pytest.raises(InputError, match="overlap holds 0"):
        theory.phase_constant(0.0, num_classes=10)


@pytest.mark.parametrize("size", [2, 3, 10, 1000, 10**9])
def test_the_order_of_rates_turns_where_h_grows_as_the_square_root_of_time(size: int) -> None:
    """d ln h/d ln s = 1/2, found by bisection: y = M h solves 2 (e^y - 1 + (M - 1) y) = y (e^y + M - 1)."""
    y = brentq(
        lambda y: 2 * (np.expm1(y) + (size - 1) * y) - y * (np.exp(y) + size - 1), 1.0, 3 + np.log(size), xtol=1e-13
    )
    steps = (np.expm1(y) + (size - 1) * y) / (size * 0.5)
    turn = theory.rate_order_time(vocab_size=size, num_classes=7, lr_y=0.5)
    assert turn == pytest.approx(7 * steps, rel=1e-9)
