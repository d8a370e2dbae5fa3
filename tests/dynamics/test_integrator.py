"""The integrator, on equations whose solution is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import cho_factor

from scansnap.dynamics.integrator import Step, errors_of_guess, evaluate, integrate, radau_tableau

pytestmark = pytest.mark.rounding


class Relaxation:
    """dy/du = -y + 1, dz/du = -speed (z - sin u - y) + cos u + dy/du: from z = y = 0, z = sin u + y at any speed."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def velocity(self, u: float, state: np.ndarray, out: np.ndarray) -> None:
        y, z = state
        out[1] = -self.speed * (z - np.sin(u) - y) + np.cos(u) + 1 - y
        out[0] = 1 - y

    def curvature(self, u: float, state: np.ndarray, out: np.ndarray) -> None:
        out[0, 0, 0] = -self.speed


TIMES = np.linspace(0.5, 10.0, 10)

BOUND = 10.0
"""The largest error over the tolerance.

A step allows sqrt(2) of tolerance (1 + |z|) in z, if y has no error, and |z| < 2: 3 sqrt(2) times the tolerance.  The
rest is for terms of higher order in the step, which the estimates leave out.  Errors of rounding are far below, since
the fast part damps its own: 1e-15 where 1e-11 is the least bound.
"""


def solved(speed: float, rtol: float, times: np.ndarray = TIMES) -> tuple[float, int]:
    """The largest error at the times over the tolerance, and the number of evaluations."""
    states = np.empty((len(times), 2))
    reached, evaluations = integrate(Relaxation(speed), np.array([0, 1]), np.zeros(2), times, rtol, rtol, 10**5, states)
    assert reached == times[-1]
    exact = np.stack([1 - np.exp(-times), np.sin(times) + 1 - np.exp(-times)], axis=1)
    return float(np.abs(states - exact).max()) / rtol, evaluations


@pytest.mark.parametrize("speed", [0.0, 1.0, 30.0, 1e3, 1e6, 1e10])
def test_a_slow_manifold_at_any_speed(speed: float) -> None:
    """The error is a few times the tolerance and the work is bounded, however fast z relaxes."""
    for rtol in (1e-6, 1e-9, 1e-12):
        error, evaluations = solved(speed, rtol)
        assert error < BOUND
        assert evaluations < 20_000


def test_a_stiff_part_after_steps_that_grow() -> None:
    """The jump of slopes between two steps shows no error where the second is sqrt(2) times as long."""
    assert max(solved(speed, 1e-10)[0] for speed in np.geomspace(50, 500, 20)) < BOUND
    assert max(solved(speed, 1e-11)[0] for speed in np.geomspace(200, 600, 12)) < BOUND


def test_results_where_the_leading_error_changes_its_sign() -> None:
    """The fifth derivative of z vanishes three times between 0 and 10; for some ends a long step falls there."""
    assert max(solved(1e7, 1e-9, end * TIMES)[0] for end in np.linspace(0.3, 1, 50)) < BOUND


def test_the_tableau_integrates_polynomials() -> None:
    """Two stages are the textbook's Radau IIA; s stages integrate degree s - 1 to every node and 2s - 2 to the end."""
    assert np.allclose(radau_tableau(2).integrals, [[5 / 12, -1 / 12], [3 / 4, 1 / 4]])
    for stages in (2, 3, 4, 5):
        nodes, integrals = radau_tableau(stages).nodes, radau_tableau(stages).integrals
        for degree in range(2 * stages - 1):
            error = np.abs(integrals @ nodes**degree - nodes ** (degree + 1) / (degree + 1))
            assert error[-1] < 1e-13
            assert degree >= stages or error.max() < 1e-13
        assert np.isclose(np.prod(1 - nodes[:-1]), stages * np.prod(nodes))  # q'(1) = s |q'(0)|
        assert abs(integrals[-1] @ nodes ** (2 * stages - 1) - 1 / (2 * stages)) > 1e-6


def test_very_stiff_errors_vanish_after_s_sweeps() -> None:
    """1 - T^-1 A is nilpotent."""
    for stages in (2, 3, 4, 5):
        table = radau_tableau(stages)
        iteration = np.eye(stages) - np.linalg.solve(table.triangle, table.integrals)
        assert np.abs(np.linalg.matrix_power(iteration, stages)).max() < 1e-10


@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.0, 5.0])
def test_the_first_guess_measures_the_derivative(ratio: float) -> None:
    """Of m = u^(s+1), where D = 1: a step's polynomial through m misses it by `between`, the next step's stages too."""
    table, before = radau_tableau(), 0.7
    degree, length = len(table.nodes) + 1, ratio * before
    ends = np.append(0.0, table.nodes)
    polynomial = table.coefficients @ (before * ends)[:, None] ** degree
    guess = evaluate(polynomial, 1 + table.nodes * ratio)[:, 0]
    missed = (before + length * table.nodes) ** degree - guess
    np.testing.assert_allclose(missed / errors_of_guess(table, ratio), length**degree, rtol=1e-8)
    inside = np.linspace(0, 1, 999)
    errors = inside**degree - evaluate(table.coefficients @ ends[:, None] ** degree, inside)[:, 0]
    assert table.between == pytest.approx(np.abs(errors).max(), rel=1e-4)


@pytest.mark.parametrize(("speed", "rel"), [(1e6, 1e-3), (100.0, 0.02), (10.0, 0.35)])
def test_the_error_of_a_stiff_part(speed: float, rel: float) -> None:
    """It is that of a step of collocation for z' = m' - speed (z - m) from z = m, solved directly."""
    table = radau_tableau()
    stages, degree = len(table.nodes), len(table.nodes) + 1
    slopes = speed * table.nodes**degree + degree * table.nodes ** (degree - 1)
    z = np.linalg.solve(np.eye(stages) + speed * table.integrals, table.integrals @ slopes)
    factors = [[cho_factor(np.array([[1 + own * speed]]), lower=True)] for own in np.diag(table.triangle)]
    one, none = np.zeros(1), np.zeros(0)
    step = Step(Relaxation(speed), [slice(0, 1)], one, 0.0, 1.0, none, table, none, none, factors)
    assert step.stiff_error(np.ones(1))[0] == pytest.approx(z[-1] - 1, rel=rel)
