"""Equations of motion, integrated from zero until they take too long."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from scansnap.runtime.errors import InputError
from scansnap.validation.checks import FloatArray

MOST_EVALUATIONS = 200_000
"""Equations are given up after this many evaluations: some thirty times what the figures need."""


def integrate(
    velocity: Callable[[float, FloatArray], FloatArray],
    start: FloatArray,
    ends: FloatArray,
    *,
    rtol: float,
    atol: float,
    advice: str,
) -> FloatArray:
    """The state (n, size) at increasing `ends`, from `start` at 0; what cannot be integrated is refused with advice."""
    from scipy.integrate import solve_ivp  # takes long to import

    evaluations = itertools.count()

    def counted(x: float, state: FloatArray) -> FloatArray:
        if next(evaluations) == MOST_EVALUATIONS:
            raise InputError(f"the equations take more than {MOST_EVALUATIONS:,} evaluations: {advice}.")
        return velocity(x, state)

    solution = solve_ivp(
        counted, (0.0, max(ends[-1], 1e-12)), start, method="DOP853", t_eval=ends, rtol=rtol, atol=atol
    )
    if len(solution.t) < len(ends):  # `y` is no array where the first step fails
        raise InputError(f"the equations cannot be integrated to their end: {advice}.")
    return np.asarray(solution.y).T
