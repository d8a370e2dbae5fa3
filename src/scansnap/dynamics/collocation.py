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

and (1 - h T_11 J)^-1 of that is the error estimate, because F_0 alone would overrate errors that decay at once.  It is
compared with atol + rtol |U|, root mean square over the entries.

Between the ends a stiff z is less exact than at them, which that estimate does not show.  So if a result is wanted
there, the error of the polynomial counts too.  It is D h^(s+1) q((u - u_0)/h) with q(x) = x (x - c_1) ... (x - c_s) and
D the derivative of order s + 1 over (s + 1)!, and the error of the first guess at c_1, on the step before of length h',
was D h'^(s+1) q(1 + c_1 h/h').  Their ratio times the change of the first guess is the estimate.

The code runs compiled, for systems that are named tuples with compiled functions (`compiled/flow.py`), and as it stands
for objects with the methods `velocity` and `curvature` (`flow_tensors.py`).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable
from numpy.polynomial import legendre
from numpy.typing import NDArray

from scansnap.dynamics.compiled.loops import FAST

STAGES = 4
"""s.  With more, steps are longer but sweeps converge more slowly where z is neither slow nor very stiff."""

FIRST_STEP = 0.01
SAFETY, LEAST_GROWTH, MOST_GROWTH = 0.9, 0.2, 5.0

SOLVED = 0.02
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


@cache
def tableau(stages: int = STAGES) -> Tableau:
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
    return Tableau(nodes, integrals, np.ascontiguousarray(triangle), error, np.linalg.inv(points), between)


def _upper_factor(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """R of L R, without pivots."""
    upper = matrix.copy()
    for i in range(len(upper)):
        upper[i + 1 :] -= np.outer(upper[i + 1 :, i] / upper[i, i], upper[i])
    return upper


def velocity(system: Any, u: float, state: NDArray[np.float64], out: NDArray[np.float64], whole: bool) -> None:
    """out = F(u, state), or only its fast part."""
    system.velocity(u, state, out, whole)


def curvature(system: Any, u: float, state: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """out[b] = J of the b-th block of the fast part (B, N, N); smaller blocks are at the beginning."""
    system.curvature(u, state, out)


INLINED: Any = {"fastmath": FAST, "error_model": "numpy", "forceinline": True}
"""Always inlined, as in `compiled/loops.py`."""

_compiled = njit(cache=True, **INLINED)
_either = register_jitable(**INLINED)  # compiled in compiled code, plain Python elsewhere


@_either
def integrate(system, blocks, tableau, start, times, rtol, atol, most_evaluations, states):
    """Fill `states` (n, N) with the solution at increasing `times` (n,) from 0 on.

    Returns the time that was reached and the number of evaluations of F.  The fast part are the last entries, with the
    b-th block from blocks[b] to blocks[b+1] - 1 among them.
    """
    stages, size, end = len(tableau.nodes), len(start), times[-1]
    fast = size - blocks[-1]
    widest = 0
    for b in range(len(blocks) - 1):
        widest = max(widest, blocks[b + 1] - blocks[b])
    jacobian = np.zeros((len(blocks) - 1, widest, widest))
    factors = np.zeros((stages, len(blocks) - 1, widest, widest))
    state, slope = start.copy(), np.empty(size)
    values, slopes, changes = np.empty((stages, size)), np.empty((stages, size)), np.empty((stages, size))
    polynomial = np.zeros((stages + 1, size))
    base, scratch, guess = np.empty(size), np.empty(size), np.empty(size)
    u, step, before = 0.0, FIRST_STEP, 0.0
    record = 0
    while record < len(times) and times[record] <= 0.0:
        states[record] = start
        record += 1
    velocity(system, u, state, slope, True)
    evaluations, moved = 1, True
    while record < len(times) and evaluations < most_evaluations and u + 1e-14 * end < u + step:
        last = step >= end - u
        step = end - u if last else step
        if moved:
            curvature(system, u, state, jacobian)
            moved = False
        positive = True
        for i in range(stages):
            for b in range(len(blocks) - 1):
                width = blocks[b + 1] - blocks[b]
                positive = positive and factorize(jacobian[b], width, step * tableau.triangle[i, i], factors[i, b])
        if not positive:
            step *= SHORTER
            continue
        _guess(system, tableau, u, step, before, state, polynomial, values, slopes)
        guess[:] = values[0]
        sweeps, rate = _solve(
            system, blocks, fast, tableau, u, step, rtol, atol, state, factors, values, slopes, changes, base
        )
        evaluations += stages * (2 * sweeps + 1)
        if not rate < 1.0:
            step *= SHORTER
            continue
        combine(scratch, slope, step * tableau.triangle[0, 0] - 1.0, step, tableau.error, slopes, stages)
        _solve_blocks(blocks, factors[0], scratch[fast:])
        error = _size_of(scratch, state, values[stages - 1], rtol, atol)
        if before > 0.0 and times[record] < u + step and not (last and record == len(times) - 1):
            change = _size_between(guess, values[0], state, rtol, atol)
            error = max(error, change * _error_between(tableau, step / before))
        growth = min(MOST_GROWTH, SAFETY * max(error, 1e-10) ** (-1.0 / (stages + 1)))
        if not error <= 1.0:
            step *= max(LEAST_GROWTH, growth) if math.isfinite(error) else SHORTER
            continue
        interpolate(tableau.coefficients, state, values, polynomial)
        while record < len(times) and (last or times[record] <= u + step):
            evaluate(polynomial, (times[record] - u) / step, states[record])
            record += 1
        u = end if last else u + step
        before, moved = step, True
        state[:] = values[stages - 1]
        slope[:] = slopes[stages - 1]
        step *= min(growth, max(LEAST_GROWTH, WANTED_RATE / max(rate, 1e-10)))
    return u, evaluations


@_either
def _guess(system, tableau, u, step, before, state, polynomial, values, slopes):
    """The stages on the last step's polynomial, or at the state if there is none, and their slopes."""
    for i in range(len(tableau.nodes)):
        if before > 0.0:
            evaluate(polynomial, 1.0 + tableau.nodes[i] * step / before, values[i])
        else:
            values[i] = state
        velocity(system, u + tableau.nodes[i] * step, values[i], slopes[i], True)


@_either
def _solve(system, blocks, fast, tableau, u, step, rtol, atol, state, factors, values, slopes, changes, base):
    """Sweep until (*) is solved.  Returns the number of sweeps and their rate of convergence, 1 if they fail."""
    stages = len(tableau.nodes)
    rate, before = 0.0, 0.0
    for sweep in range(1, MOST_SWEEPS + 1):
        moved = 0.0
        for i in range(stages):
            now = u + tableau.nodes[i] * step
            own = step * tableau.triangle[i, i]
            combine(base, state, 0.0, step, tableau.integrals[i], slopes, stages)
            combine(base, base, 0.0, step, tableau.triangle[i], changes, i)
            moved = max(moved, _size_between(values[i, :fast], base[:fast], state[:fast], rtol, atol))
            values[i, :fast] = base[:fast]
            for whole in (False, True):
                velocity(system, now, values[i], changes[i], whole)
                if not whole:
                    correct(base[fast:], own, changes[i, fast:], slopes[i, fast:], values[i, fast:])
                    _solve_blocks(blocks, factors[i], base[fast:])
                    moved = max(moved, _size_of(base[fast:], state[fast:], state[fast:], rtol, atol))
                    add(values[i, fast:], base[fast:])
            subtract(changes[i], slopes[i])
        for i in range(stages):
            add(slopes[i], changes[i])
        if not math.isfinite(moved):
            break
        if sweep > 1:
            rate = moved / before
        if moved < 1e-3 * SOLVED:
            return sweep, min(rate, WANTED_RATE)
        if sweep > 1 and rate < 1.0 and moved * rate < SOLVED * (1.0 - rate):
            return sweep, rate
        if sweep > 2 and rate > DIVERGING:
            break
        before = moved
    return sweep, 1.0


@_either
def _error_between(tableau, ratio):
    """The error of a step's polynomial over that of the first guess at c_1, a step `ratio` times as long as before."""
    beyond = 1.0 + tableau.nodes[0] * ratio
    outside = beyond
    for node in tableau.nodes:
        outside *= beyond - node
    return ratio ** (len(tableau.nodes) + 1) * tableau.between / outside


@_either
def _solve_blocks(blocks, factors, x):
    for b in range(len(blocks) - 1):
        substitute(factors[b], x[blocks[b] : blocks[b + 1]])


@_compiled
def combine(out, base, more, step, weights, rows, count):
    """out = (1 + more) base + step sum_j weights_j rows_j over the first rows."""
    for k in range(len(out)):
        out[k] = base[k] + more * base[k]
    for j in range(count):
        weight = step * weights[j]
        for k in range(len(out)):
            out[k] += weight * rows[j, k]


@_compiled
def add(x, y):
    """x += y."""
    for k in range(len(x)):
        x[k] += y[k]


@_compiled
def subtract(x, y):
    """x -= y."""
    for k in range(len(x)):
        x[k] -= y[k]


@_compiled
def correct(base, own, now, slope, value):
    """base += own (now - slope) - value: the right-hand side of the Newton step."""
    for k in range(len(base)):
        base[k] += own * (now[k] - slope[k]) - value[k]


@_compiled
def _size_of(change, start, end, rtol, atol):
    """The root mean square of a change, each entry relative to what is allowed."""
    total = 0.0
    for k in range(len(change)):
        part = change[k] / (atol + rtol * max(abs(start[k]), abs(end[k])))
        total += part * part
    return math.sqrt(total / max(len(change), 1))


@_compiled
def _size_between(x, y, scale, rtol, atol):
    """The same for y - x."""
    total = 0.0
    for k in range(len(x)):
        part = (y[k] - x[k]) / (atol + rtol * abs(scale[k]))
        total += part * part
    return math.sqrt(total / max(len(x), 1))


@_compiled
def interpolate(coefficients, state, values, polynomial):
    """The polynomial through U_0, ..., U_s."""
    for m in range(len(polynomial)):
        for k in range(len(state)):
            polynomial[m, k] = coefficients[m, 0] * state[k]
        for i in range(len(values)):
            for k in range(len(state)):
                polynomial[m, k] += coefficients[m, i + 1] * values[i, k]


@_compiled
def evaluate(polynomial, x, out):
    """The polynomial at x."""
    for k in range(len(out)):
        out[k] = polynomial[-1, k]
    for m in range(len(polynomial) - 2, -1, -1):
        for k in range(len(out)):
            out[k] = out[k] * x + polynomial[m, k]


@_compiled
def factorize(matrix, width, shift, factor):
    """Cholesky's factor of 1 - shift matrix; False if it is not positive definite."""
    for i in range(width):
        for j in range(i + 1):
            entry = -shift * matrix[i, j]
            if i == j:
                entry += 1.0
            for k in range(j):
                entry -= factor[i, k] * factor[j, k]
            if i > j:
                factor[i, j] = entry / factor[j, j]
            elif entry > 0.0:
                factor[i, i] = math.sqrt(entry)
            else:
                return False
    return True


@_compiled
def substitute(factor, x):
    """x <- (1 - shift matrix)^-1 x."""
    for i in range(len(x)):
        entry = x[i]
        for k in range(i):
            entry -= factor[i, k] * x[k]
        x[i] = entry / factor[i, i]
    for i in range(len(x) - 1, -1, -1):
        x[i] /= factor[i, i]
        for k in range(i):
            x[k] -= factor[i, k] * x[i]
