"""The integrator, on equations whose solution is known."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.data.named_classes import as_source
from scansnap.dynamics.collocation import curvature, integrate, tableau, velocity
from scansnap.dynamics.compiled.flow_engine import KernelFlow
from scansnap.dynamics.flow_engine import FlowWork
from scansnap.dynamics.options import FlowOptions


class Relaxation:
    """dy/du = -y + 1, dz/du = -speed (z - sin u - y) + cos u + dy/du: from z = y = 0, z = sin u + y at any speed."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def velocity(self, u: float, state: np.ndarray, out: np.ndarray, whole: bool) -> None:
        y, z = state
        out[1] = -self.speed * (z - np.sin(u) - y) + np.cos(u) + 1 - y
        if whole:
            out[0] = 1 - y

    def curvature(self, u: float, state: np.ndarray, out: np.ndarray) -> None:
        out[0, 0, 0] = -self.speed


def solved(speed: float, rtol: float) -> tuple[float, int]:
    """The largest error at ten times, and the number of evaluations."""
    times = np.linspace(0.5, 10.0, 10)
    states = np.empty((10, 2))
    reached, evaluations = integrate(
        Relaxation(speed), np.array([0, 1]), tableau(), np.zeros(2), times, rtol, rtol, 10**5, states
    )
    assert reached == times[-1]
    exact = np.stack([1 - np.exp(-times), np.sin(times) + 1 - np.exp(-times)], axis=1)
    return float(np.abs(states - exact).max()), evaluations


@pytest.mark.parametrize("speed", [0.0, 1.0, 30.0, 1e3, 1e6, 1e10])
def test_a_slow_manifold_at_any_speed(speed: float) -> None:
    """The error is a few times the tolerance and the work is bounded, however fast z relaxes."""
    for rtol in (1e-6, 1e-9, 1e-12):
        error, evaluations = solved(speed, rtol)
        assert error < 10 * rtol
        assert evaluations < 30_000


def test_the_tableau_integrates_polynomials() -> None:
    """Two stages are the textbook's Radau IIA; s stages integrate degree s - 1 to every node and 2s - 2 to the end."""
    assert np.allclose(tableau(2).integrals, [[5 / 12, -1 / 12], [3 / 4, 1 / 4]])
    for stages in (2, 3, 4, 5):
        nodes, integrals = tableau(stages).nodes, tableau(stages).integrals
        for degree in range(2 * stages - 1):
            error = np.abs(integrals @ nodes**degree - nodes ** (degree + 1) / (degree + 1))
            assert error[-1] < 1e-13
            assert degree >= stages or error.max() < 1e-13
        assert abs(integrals[-1] @ nodes ** (2 * stages - 1) - 1 / (2 * stages)) > 1e-6


def test_very_stiff_errors_vanish_after_s_sweeps() -> None:
    """1 - T^-1 A is nilpotent."""
    for stages in (2, 3, 4, 5):
        table = tableau(stages)
        iteration = np.eye(stages) - np.linalg.solve(table.triangle, table.integrals)
        assert np.abs(np.linalg.matrix_power(iteration, stages)).max() < 1e-10


@pytest.mark.parametrize("init", ["zeros", "uniform"])
def test_the_hessian_is_the_slope_of_the_velocity(init: str) -> None:
    """Central differences of the compiled velocity, at a trained state with random changes."""
    from numba import njit

    compiled_velocity = njit(lambda system, u, state, out: velocity(system, u, state, out, True))
    compiled_curvature = njit(lambda system, u, state, out: curvature(system, u, state, out))
    options = FlowOptions(lr_y=1.0, lr_z=2.0, times=(1e3,), init=init)
    work = FlowWork.checked(
        as_source(ss.synthetic(num_query=2, next_per_query=2, num_common=2, num_distinct=3)), options
    )
    engine = KernelFlow(work, work.start(options.runs))
    system = engine._system._replace(lr_y=1.0, lr_z=2.0)
    fast = int(system.blocks[-1])
    state = np.random.default_rng(0).normal(size=system.rows * len(system.multiplicity) + fast)
    width = int(np.diff(system.blocks).max())
    hessian = np.zeros((len(system.blocks) - 1, width, width))
    compiled_curvature(system, 1.0, state, hessian)
    slopes = np.empty((fast, fast))
    for k in range(fast):
        sides = []
        for change in (1e-5, -1e-5):
            moved, out = state.copy(), np.empty_like(state)
            moved[len(state) - fast + k] += change
            compiled_velocity(system, 1.0, moved, out)
            sides.append(out[-fast:])
        slopes[k] = (sides[0] - sides[1]) / 2e-5
    for b, (first, stop) in enumerate(zip(system.blocks[:-1], system.blocks[1:], strict=True)):
        own = hessian[b, : stop - first, : stop - first]
        assert np.abs(own - slopes[first:stop, first:stop]).max() < 1e-7 * np.abs(own).max() + 1e-8
        slopes[first:stop, first:stop] = 0
    assert np.abs(slopes).max() < 1e-8  # queries do not act on each other
