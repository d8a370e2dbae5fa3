"""The flow of the basic layer in compiled code: its velocity and its fast block.

Why it is stiff
---------------
In log time u, with t + s = s e^u, the flow is (`gradients.py`; f, g, x and a = f . g are those of class n of query m)

    dY/du = (t + s) eta_Y sum_n P(n) f x^T,      dz_m/du = (t + s) eta_Z sum_n P(n) f o (g - a f).

Late, x falls like 1/(eta_Y t), and dY/du and its derivatives by Y stay of order one.  But g = Y x falls no faster, so
dz/du is of order eta_Z/eta_Y.  For given Y, the logits move up the gradient of J, toward f = g / |g| among the tokens
with g_l > 0, and they relax in a time of order eta_Y/eta_Z: the Hessian there is about -2 a f_l^2 (t + s) eta_Z, down
to -(eta_Z/eta_Y) ln t.  An explicit method would need as many steps as that, however smooth the solution.  So z is the
fast part of `collocation.py`, and Y the slow one.  The fast block is the Hessian of J by z_m; it does not mix queries.

The Hessian
-----------
With w = f o f, which sums to one, df_l = f_l (dz_l - w . dz).  As a function of f, J has the gradient g and the Hessian
-Y C Y^T with C = diag(p) - p p^T.  Let e = f o g, and let G = diag(f) Y C Y^T diag(f) have the row sums G1 and the
total 1'G1.  Then

    d^2 J_n / dz^2 = diag(e - 2 a w) - e w' - w e' + 3 a w w' - (G - w (G1)' - (G1) w' + (1'G1) w w').

C sends (1, ..., 1) to zero, so Y may be taken relative to the column of the next token, which avoids the difference of
large numbers late in training.

What rounding leaves
--------------------
The dz of a class sums to zero: a neutral direction of its Hessian.  In all others, errors of rounding, which are
eta_Z/eta_Y times as large as the velocity, decay at once.  In this one they would add up, so the sum is subtracted from
the tokens in proportion to f_l^2: the logits of tokens without attention do not decay, and must get no errors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import overload
from numpy.typing import NDArray

from scansnap.dynamics.collocation import INLINED, curvature, integrate, velocity
from scansnap.dynamics.compiled.loops import FAST
from scansnap.dynamics.compiled.plan import ROOM
from scansnap.runtime.inner_function import inner
from scansnap.runtime.source_stamp import source_stamp


class BasicSystem(NamedTuple):
    """A run's equation.  Its state is y (S C entries, without padding), then the logits that can move, by query."""

    size: NDArray[np.int32]  # (K,)
    support: NDArray[np.int32]  # (K, W) rows of y
    place: NDArray[np.int64]  # (K, W) entries of z, among the logits
    probs: NDArray[np.float64]  # (K, W)
    query_index: NDArray[np.int64]  # (K,)
    blocks: NDArray[np.int64]  # (Q + 1,) where each query's logits begin
    next_column: NDArray[np.int64]  # (K,)
    class_weights: NDArray[np.float64]  # (K,) P(n)
    multiplicity: NDArray[np.float64]  # (C,) mu
    column_rate: NDArray[np.float64]  # (C,) 1/mu
    rows: int  # S
    lr_y: float
    lr_z: float
    scale: float  # s


_jit = inner(allocates=True, **INLINED)


@overload(velocity, jit_options=INLINED)
def _velocity(system, u, state, out, whole):
    return (lambda system, u, state, out, whole: _move(system, u, state, out, whole)) if _is_basic(system) else None


@overload(curvature, jit_options=INLINED)
def _curvature(system, u, state, out):
    return (lambda system, u, state, out: _bend(system, u, state, out)) if _is_basic(system) else None


def _is_basic(system):
    return isinstance(system, types.NamedTuple) and system.instance_class is BasicSystem


@_jit
def _move(system, u, state, out, whole):
    """Lemma 1, summed over classes; `whole` includes dY."""
    columns = len(system.multiplicity)
    entries = system.rows * columns
    y, z, dz = state[:entries].reshape(system.rows, columns), state[entries:], out[entries:]
    dy = out[:entries].reshape(system.rows, columns)
    clock = system.scale * math.exp(u)  # t + s
    width = system.support.shape[1]
    f, g, x = _apart(width), _apart(width), _apart(columns)
    dz[:] = 0.0
    if whole:
        dy[:] = 0.0
    for n in range(len(system.size)):
        _residual(system, y, z, n, f, x)
        weight = clock * system.lr_z * system.class_weights[n]
        along = 0.0
        for w in range(system.size[n]):
            g[w] = 0.0
            for j in range(columns):
                g[w] += y[system.support[n, w], j] * x[j]
            along += f[w] * g[w]
        error = 0.0
        for w in range(system.size[n]):
            g[w] = f[w] * (g[w] - along * f[w])
            error += g[w]
        for w in range(system.size[n]):
            dz[system.place[n, w]] += weight * (g[w] - error * f[w] * f[w])
        if whole:
            for j in range(columns):
                x[j] *= clock * system.lr_y * system.class_weights[n] * system.column_rate[j]
            for w in range(system.size[n]):
                for j in range(columns):
                    dy[system.support[n, w], j] += f[w] * x[j]


@_jit
def _residual(system, y, z, n, f, x):
    """f of class n, and its residual x = e_n - p.

    Returns p_n, the loss, and whether the next token alone has the largest logit.  1 - p_n is the sum of the other
    probabilities, never a difference from one.
    """
    size, own, columns = system.size[n], system.next_column[n], len(x)
    top = -np.inf
    for w in range(size):
        top = max(top, z[system.place[n, w]])
    square = 0.0
    for w in range(size):
        f[w] = system.probs[n, w] * math.exp(z[system.place[n, w]] - top)
        square += f[w] * f[w]
    scale = 1.0 / math.sqrt(square)
    for j in range(columns):
        x[j] = 0.0
    for w in range(size):
        f[w] *= scale
        for j in range(columns):
            x[j] += f[w] * y[system.support[n, w], j]
    own_logit = x[own]
    x[own] = -np.inf
    other = -np.inf
    for j in range(columns):
        other = max(other, x[j])
    top = max(own_logit, other)
    for j in range(columns):
        x[j] = system.multiplicity[j] * math.exp(x[j] - top)
    rest = 0.0
    for j in range(columns):
        rest += x[j]
    own_exp = math.exp(own_logit - top)
    scale = 1.0 / (rest + own_exp)
    for j in range(columns):
        x[j] *= -scale
    x[own] = rest * scale
    loss = math.log1p(rest / own_exp) if own_exp > rest else top - own_logit + math.log(rest + own_exp)
    return own_exp * scale, loss, own_logit > other


@_jit
def _bend(system, u, state, out):
    """(t + s) eta_Z times the Hessian of J by the logits of each query."""
    columns = len(system.multiplicity)
    entries = system.rows * columns
    y, z = state[:entries].reshape(system.rows, columns), state[entries:]
    width = system.support.shape[1]
    f, x, e, sums, root = _apart(width), _apart(columns), _apart(width), _apart(width), _apart(columns)
    spread = _apart(width * columns).reshape(width, columns)  # of Y around the next token's column, times sqrt(p)
    pairs = _apart(width * width).reshape(width, width)  # G
    out[:] = 0.0
    for n in range(len(system.size)):
        size, own = system.size[n], system.next_column[n]
        _residual(system, y, z, n, f, x)
        for j in range(columns):
            root[j] = math.sqrt(abs(x[j]))
        along = 0.0
        for w in range(size):
            row = system.support[n, w]
            g = 0.0
            for j in range(columns):
                g += (y[row, j] - y[row, own]) * x[j]
            e[w] = f[w] * g
            along += e[w]
            for j in range(columns):
                spread[w, j] = f[w] * (y[row, j] - y[row, own]) * root[j]
        total = 0.0
        for v in range(size):
            sums[v] = 0.0
            for w in range(size):
                product = -e[v] * e[w]
                for j in range(columns):
                    product += spread[v, j] * spread[w, j]
                pairs[v, w] = product
                sums[v] += product
            total += sums[v]
        weight = system.scale * math.exp(u) * system.lr_z * system.class_weights[n]
        first, block = system.blocks[system.query_index[n]], out[system.query_index[n]]
        for v in range(size):
            a, i = f[v] * f[v], system.place[n, v] - first
            block[i, i] += weight * (e[v] - 2.0 * along * a)
            for w in range(size):
                b = f[w] * f[w]
                entry = (3.0 * along - total) * a * b - a * (e[w] - sums[w]) - b * (e[v] - sums[v]) - pairs[v, w]
                block[i, system.place[n, w] - first] += weight * entry


@_jit
def _measure(system, state):
    """Loss and accuracy."""
    columns = len(system.multiplicity)
    y, z = state[: system.rows * columns].reshape(system.rows, columns), state[system.rows * columns :]
    f, x = _apart(system.support.shape[1]), _apart(columns)
    loss, accuracy = 0.0, 0.0
    for n in range(len(system.size)):
        _, own_loss, correct = _residual(system, y, z, n, f, x)
        loss += system.class_weights[n] * own_loss
        accuracy += system.class_weights[n] * (1.0 if correct else 0.0)
    return loss, accuracy


@_jit
def _apart(size):
    """A vector with room around it; `kernel._apart` says why."""
    return np.empty(size + 2 * ROOM)[ROOM : ROOM + size]


def _compile(stamp: int):
    """The function cached on disk; `stamp` makes the cache notice changes in what it calls."""

    @njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
    def solve(system, tableau, start, times, rtol, atol, most_evaluations, states, losses, accuracies):
        """`integrate`, and the loss and accuracy (n,) of what was reached."""
        if stamp < 0:
            return 0.0, 0
        reached = integrate(system, system.blocks, tableau, start, times, rtol, atol, most_evaluations, states)
        for i in range(len(times)):
            if times[i] <= reached[0]:
                losses[i], accuracies[i] = _measure(system, states[i])
        return reached

    return solve


solve = _compile(source_stamp(__name__))
