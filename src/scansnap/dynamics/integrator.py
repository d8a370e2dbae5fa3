"""An integrator for equations with a slow part y and a fast part z: Radau collocation, solved by sweeps.

    d(y, z)/du = F(u, y, z),      (y, z)(0) given

A step of length h finds the polynomial of degree s that starts at U_0 and satisfies the equation at the s Radau nodes
u + c_i h, the last of which is the step's end: with A_ij the integral from 0 to c_i of the j-th Lagrange polynomial,

    U_i = U_0 + h sum_j A_ij F(U_j).                                                                            (*)

The end is exact to order 2s - 1, also where z follows y on a slow manifold however stiffly, and the polynomial between
the ends is exact to order s: results at given times are read from it, and the next step's first guess.

Sweeps
------
(*) is solved by deferred correction.  A sweep goes through the stages and replaces A by a lower triangle T wherever new
values are known (F' and U' are new):

    base_i = U_0 + h sum_j A_ij F_j + h sum_{j<i} T_ij (F'_j - F_j),
    y'_i = base_i,      z'_i = base_i + h T_ii (F'_i - F_i),

whose fixed point is (*) for any T.  Only z is implicit.  It takes one Newton step with the fast block J = dF_z/dz of
the step's start, in which y has its new value already:

    (1 - h T_ii J) (z'_i - z_i) = base_i + h T_ii (F_z(y'_i, z_i) - F_i) - z_i.

With A^T = L R (no pivots) and T = R^T, the error of a very stiff z is multiplied by 1 - T^-1 A = 1 - L^T, which is
nilpotent: s sweeps remove it.  For slow parts a sweep gains a factor of order h.  F_z must be the gradient of some
function, so that J is symmetric and 1 - h T_ii J is positive definite, unless a fast mode grows by as much as itself
within the step: then Cholesky's method fails and the step is made shorter.  J comes in blocks, which do not act on
each other.

Step size
---------
The quadrature of order s that also uses F_0, with the weight T_11, differs from the end by

    h (T_11 F_0 + sum_j e_j F_j),

and (1 - h T_11 J)^-1 of that is an error estimate, because F_0 alone would overrate errors that decay at once.  It is
compared with atol + rtol |U|, root mean square over the entries.

It can miss errors of a stiff z.  Let m be the smooth solution that z follows, and D its derivative of order s + 1 over
(s + 1)!.  The polynomial misses m by D h^(s+1) q((u - u_0)/h) with q(x) = x (x - c_1) ... (x - c_s), up to terms that
vanish as J grows.

- At the end the slopes differ by D h^s q'(1), so z misses m by J^-1 D h^s q'(1).  The estimate sees the jump of slopes
  from the step before, of length h', which is D (h^s q'(0) - h'^s q'(1)).  For even s it is 0 at h = s^(1/s) h'.
- Between the ends the error is larger than at them, by a factor of order h J.  It counts if a result is wanted there.

So D is measured, too.  The first guess at c_i is the polynomial of the step before, whose error there was
D h'^(s+1) q(1 + c_i h/h').  The sweeps change the guess by this error, so it gives D h^(s+1), once for each stage.  The
largest of the s values counts: where D changes its sign, one of them may be 0.  The error between the ends is max |q|
times this value, and the error of z at the end is

    (1 - M) M T_ss q'(1) D h^(s+1),      M = (1 - h T_ss J)^-1,

which is J^-1 D h^s q'(1) for large J, up to its sign, and vanishes for small J, where the end is exact to order 2s - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

FloatArray = NDArray[np.float64]


STAGES = 4
"""s.  With more, steps are longer but sweeps converge more slowly where z is neither slow nor very stiff."""

FIRST_STEP = 0.01
SAFETY, LEAST_GROWTH, MOST_GROWTH = 0.9, 0.2, 5.0

SWEEP_TOLERANCE = 0.02
"""Sweeps end when the remaining change is this part of the error allowed."""

MOST_SWEEPS = 20
DIVERGING = 0.9
"""A factor between the changes of two sweeps from which on the step is made shorter."""

WANTED_RATE = 0.4
"""The next step is at most so long that changes may be expected to fall by this factor from sweep to sweep."""

SHORTER = 0.4
"""The factor for a step whose sweeps do not converge."""


class Tableau(NamedTuple):
    """The coefficients of the method."""

    nodes: NDArray[np.float64]  # (s,) c
    integrals: NDArray[np.float64]  # (s, s) A
    triangle: NDArray[np.float64]  # (s, s) T
    error: NDArray[np.float64]  # (s,) e
    coefficients: NDArray[np.float64]  # (s+1, s+1) of the polynomial in (u - u_0)/h, from U_0, U_1, ..., U_s
    between: float  # the largest |q| on [0, 1]
    slope_at_end: float  # q'(1)


@cache
def radau_tableau(stages: int = STAGES) -> Tableau:
    """Radau nodes are the roots of P_{s-1} - P_s, with P the Legendre polynomials on [0, 1]."""
    roots = legendre.legroots([*[0.0] * (stages - 1), 1.0, -1.0])  # complex numbers in newer versions of numpy
    nodes = (np.sort(roots.real) + 1) / 2
    nodes[-1] = 1.0
    powers = np.arange(1.0, stages + 1)
    vandermonde = np.vander(nodes, stages, increasing=True)
    integrals: Any = np.linalg.solve(vandermonde.T, (nodes[:, None] ** powers / powers).T).T
    triangle = _upper_factor(integrals.T).T
    moments = 1 / powers - triangle[0, 0] * (powers == 1)
    error = np.linalg.solve(vandermonde.T, moments) - integrals[-1]
    points = np.vander(np.append(0.0, nodes), increasing=True)
    grid = np.linspace(0, 1, 1001)
    between = float(np.abs(grid * np.prod(grid[:, None] - nodes, axis=1)).max())
    slope_at_end = float(np.prod(1 - nodes[:-1]))
    triangle = np.ascontiguousarray(triangle)
    return Tableau(nodes, integrals, triangle, error, np.linalg.inv(points), between, slope_at_end)


def _upper_factor(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """R of L R, without pivots."""
    upper = matrix.copy()
    for i in range(len(upper)):
        upper[i + 1 :] -= np.outer(upper[i + 1 :, i] / upper[i, i], upper[i])
    return upper


class StiffEquation(Protocol):
    """dU/du = F(u, U) with a fast part, the last entries of U."""

    def velocity(self, u: float, state: FloatArray, out: FloatArray) -> None:
        """Fill `out` with F(u, state)."""

    def curvature(self, u: float, state: FloatArray, out: FloatArray) -> None:
        """Fill out[b] with J of the b-th block of the fast part (B, N, N); smaller blocks are at the beginning."""


@dataclass
class Step:
    """One step of the method, from `state` at u: the stages, their slopes, and how well they were solved."""

    equation: StiffEquation
    blocks: list[slice]  # of the fast part
    state: FloatArray
    u: float
    length: float
    allowed: FloatArray  # the error allowed in each entry of the state
    tableau: Tableau
    values: FloatArray  # (s, N)
    slopes: FloatArray  # (s, N)
    factors: list[list[Any]]  # Cholesky's, of 1 - h T_ii J for each stage and block

    @property
    def fast(self) -> int:
        """Where the fast part begins."""
        return len(self.state) - (self.blocks[-1].stop if self.blocks else 0)

    def relax(self, stage: int, x: FloatArray) -> None:
        """x <- (1 - h T_ii J)^-1 x."""
        for block, factor in zip(self.blocks, self.factors[stage], strict=True):
            x[block] = cho_solve(factor, x[block], check_finite=False)

    def stiff_error(self, derivative: FloatArray) -> FloatArray:
        """The error at the end of the step that follows from D h^(s+1); 0 in the slow part."""
        error = np.zeros_like(derivative)
        error[self.fast :] = self.tableau.triangle[-1, -1] * self.tableau.slope_at_end * derivative[self.fast :]
        self.relax(-1, error[self.fast :])
        twice = error.copy()
        self.relax(-1, twice[self.fast :])
        return error - twice

    def solve(self) -> tuple[int, float]:
        """Sweep until (*) is solved.  Returns the number of sweeps and their rate of convergence, 1 if they fail."""
        table, fast, length = self.tableau, self.fast, self.length
        values, slopes, changes = self.values, self.slopes, np.zeros_like(self.slopes)
        rate, before = 0.0, 0.0
        for sweep in range(1, MOST_SWEEPS + 1):
            moved = 0.0
            for i in range(len(table.nodes)):
                now, own = self.u + table.nodes[i] * length, length * table.triangle[i, i]
                base = self.state + length * (table.integrals[i] @ slopes + table.triangle[i, :i] @ changes[:i])
                moved = max(moved, rms((values[i] - base)[:fast] / self.allowed[:fast]))
                values[i, :fast] = base[:fast]
                self.equation.velocity(now, values[i], changes[i])
                step = base[fast:] + own * (changes[i, fast:] - slopes[i, fast:]) - values[i, fast:]
                self.relax(i, step)
                moved = max(moved, rms(step / self.allowed[fast:]))
                values[i, fast:] += step
                self.equation.velocity(now, values[i], changes[i])
                changes[i] -= slopes[i]
            slopes += changes
            if not math.isfinite(moved):
                break
            if sweep > 1:
                rate = moved / before
            if moved < 1e-3 * SWEEP_TOLERANCE:
                return sweep, min(rate, WANTED_RATE)
            if sweep > 1 and rate < 1.0 and moved * rate < SWEEP_TOLERANCE * (1.0 - rate):
                return sweep, rate
            if sweep > 2 and rate > DIVERGING:
                break
            before = moved
        return sweep, 1.0


def integrate(
    equation: StiffEquation,
    blocks: NDArray[np.int64],
    start: FloatArray,
    times: FloatArray,
    rtol: float,
    atol: float,
    most_evaluations: int,
    states: FloatArray,
) -> tuple[float, int]:
    """Fill `states` (n, N) with the solution at increasing `times` (n,) from 0 on.

    Returns the time that was reached and the number of evaluations of F.  The fast part are the last entries, with the
    b-th block from blocks[b] to blocks[b+1] - 1 among them.
    """
    table, size, end = radau_tableau(), len(start), float(times[-1])
    stages, parts = len(table.nodes), [slice(first, stop) for first, stop in pairwise(blocks)]
    widest = max((part.stop - part.start for part in parts), default=0)
    jacobian = np.zeros((len(parts), widest, widest))
    state, slope = start.copy(), np.empty(size)
    polynomial = np.zeros((stages + 1, size))
    u, length, before = 0.0, FIRST_STEP, 0.0
    record = int(np.searchsorted(times, 0.0, side="right"))
    states[:record] = start
    equation.velocity(u, state, slope)
    evaluations, moved = 1, True
    while record < len(times) and evaluations < most_evaluations and u + 1e-14 * end < u + length:
        last = length >= end - u
        length = end - u if last else length
        if moved:
            equation.curvature(u, state, jacobian)
            moved = False
        factors = [_factorized(jacobian, parts, length * table.triangle[i, i]) for i in range(stages)]
        if None in factors:
            length *= SHORTER
            continue
        values = np.tile(state, (stages, 1))
        if before > 0.0:
            values = evaluate(polynomial, 1.0 + table.nodes * length / before)
        guess, slopes = values.copy(), np.empty((stages, size))
        for i in range(stages):
            equation.velocity(u + table.nodes[i] * length, values[i], slopes[i])
        allowed = atol + rtol * np.abs(state)
        step = Step(equation, parts, state, u, length, allowed, table, values, slopes, factors)  # type: ignore[arg-type]
        sweeps, rate = step.solve()
        evaluations += stages * (2 * sweeps + 1)
        if not rate < 1.0:
            length *= SHORTER
            continue
        estimate = length * (table.triangle[0, 0] * slope + table.error @ slopes)
        step.relax(0, estimate[step.fast :])
        allowed_at_end = atol + rtol * np.maximum(np.abs(state), np.abs(values[-1]))
        errors = [rms(estimate / allowed_at_end)]
        if before > 0.0:
            each = (values - guess) / errors_of_guess(table, length / before)[:, None]
            derivative = each[np.argmax([rms(x / allowed) for x in each])]  # D h^(s+1)
            errors.append(rms(step.stiff_error(derivative) / allowed_at_end))
            if times[record] < u + length and not (last and record == len(times) - 1):
                errors.append(table.between * rms(derivative / allowed))
        error = float(np.max(errors))  # NaN if one of them is
        growth = min(MOST_GROWTH, SAFETY * max(error, 1e-10) ** (-1.0 / (stages + 1)))
        if not error <= 1.0:
            length *= max(LEAST_GROWTH, growth) if math.isfinite(error) else SHORTER
            continue
        polynomial = table.coefficients @ np.concatenate([state[None], values])
        reached = len(times) if last else int(np.searchsorted(times, u + length, side="right"))
        states[record:reached] = evaluate(polynomial, (times[record:reached] - u) / length)
        record = reached
        u = end if last else u + length
        before, moved = length, True
        state, slope = values[-1].copy(), slopes[-1].copy()
        length *= min(growth, max(LEAST_GROWTH, WANTED_RATE / max(rate, 1e-10)))
    return u, evaluations


def rms(x: FloatArray) -> float:
    """The root mean square; 0 of nothing."""
    return math.sqrt(float(x @ x) / max(len(x), 1))


def evaluate(polynomial: FloatArray, x: FloatArray) -> FloatArray:
    """The values (n, N) at x (n,) of the polynomial with these coefficients (m, N), lowest power first."""
    return np.vander(x, len(polynomial), increasing=True) @ polynomial


def errors_of_guess(table: Tableau, ratio: float) -> FloatArray:
    """The error of the first guess at each c_i over D h^(s+1), in a step h that is `ratio` times h'."""
    beyond = 1.0 + table.nodes * ratio
    errors: FloatArray = beyond * np.prod(beyond[:, None] - table.nodes, axis=1) / ratio ** (len(table.nodes) + 1)
    return errors


def _factorized(jacobian: FloatArray, blocks: list[slice], shift: float) -> list[Any] | None:
    """Cholesky's factors of 1 - shift J, block by block; None if one is not positive definite."""
    factors = []
    for matrix, block in zip(jacobian, blocks, strict=True):
        width = block.stop - block.start
        try:
            factors.append(cho_factor(np.eye(width) - shift * matrix[:width, :width], lower=True))
        except (LinAlgError, ValueError):  # ValueError: not finite
            return None
    return factors
