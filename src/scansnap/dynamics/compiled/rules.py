"""How matrices move in compiled code: the rules of `update_rules.py`, entry by entry.

Momentum without visiting idle rows
-----------------------------------
SGD with momentum mu moves v <- mu v + g, Y <- Y + eta v at every step, even if g = 0.  The kernel stores u = mu v, the
velocity that the next step starts from, so a step is u <- u + g, Y <- Y + eta u, u <- mu u.  A row that has been idle
for k steps has moved by eta u (1 + mu + ... + mu^(k-1)) and its u has become mu^k u; both are applied when the row is
next touched.  `age` counts the updates a row has seen.  Without momentum u returns to zero after every step and merely
accumulates the gradient.  The other rules are not linear in the gradient and have no such closed form: they visit all
rows at every step.

Where means are subtracted
--------------------------
The kernel accumulates the gradient of the rows of Y^, and -G/sqrt(M) for the last row of a head's block, with G the sum
of those gradients (`readout.py`).  SGD moves Y^ and that row.  The other rules need the gradient of Y itself,
the same for every token of a row: that of Y^ less G/M, which is that of Y^ plus the last row's over sqrt(M).  They move
Y, and the last row becomes the new sum of the others.
"""

from __future__ import annotations

import math

from scansnap.dynamics.compiled.loops import hot, move_row, rare
from scansnap.dynamics.compiled.plan import ADAM_RULE, SGD_RULE, SIGN_RULE


@hot
def touch_rows(plan, rule, y, v, age, k, size, lr, t, update, touched):
    """Bring the rows in a class's slots up to date for step t, and list those that `move_touched` will move."""
    kind = y.dtype.type
    for w in range(size):
        row = plan.slots[k, w]
        if age[row] > t:
            continue
        idle = t - age[row]
        if idle > 0 and rule.momentum > 0.0:
            drift, decay = _coasting(rule.momentum, idle)
            move_row(y, v, row, kind(lr * drift) * plan.row_sign[row], plan.column_rate, kind(decay))
        age[row] = t
        if update:
            age[row] = t + 1
            if not (moves_at_once(rule) and plan.alone[k, w]):
                touched[0] += 1
                touched[touched[0]] = row


@hot
def moves_at_once(rule):
    """Whether rows that only one class reads move as soon as their gradient is complete, while they are in the cache.

    Momentum needs the gradient alone; other rules, and Lemma 3's gradient, need that of the other classes first.
    """
    return rule.kind == SGD_RULE and not rule.modified


@hot
def _coasting(mu, idle):
    """1 + mu + ... + mu^(idle-1), and mu^idle."""
    decay, square = 1.0, mu
    while idle > 0:
        if idle & 1:
            decay *= square
        square *= square
        idle >>= 1
    return (1.0 - decay) / (1.0 - mu), decay


@hot
def touch_query(plan, rule, z, vz, age, q, lr, t, update, touched):
    """The same for a row of Z."""
    if age[q] > t:
        return
    idle = t - age[q]
    if idle > 0 and rule.momentum > 0.0:
        drift, decay = _coasting(rule.momentum, idle)
        _move_query(plan, z, vz, q, z.dtype.type(lr * drift), z.dtype.type(decay))
    age[q] = t
    if update:
        age[q] = t + 1
        touched[0] += 1
        touched[touched[0]] = q


@hot
def move_touched(plan, rule, y, v, z, vz, lr_y, lr_z, touched_rows, touched_queries):
    """One step of SGD for the rows of Y and Z that were touched."""
    kind = y.dtype.type
    mu = kind(rule.momentum)
    for i in range(1, touched_rows[0] + 1):
        row = touched_rows[i]
        move_row(y, v, row, kind(lr_y) * plan.row_sign[row], plan.column_rate, mu)
    for i in range(1, touched_queries[0] + 1):
        _move_query(plan, z, vz, touched_queries[i], kind(lr_z), mu)


@hot
def _move_query(plan, z, vz, q, rate, decay):
    """The same step for the entries of a row of Z that can move."""
    query = q // plan.heads
    for k in range(plan.query_offsets[query], plan.query_offsets[query + 1]):
        entry = plan.query_rows[k]
        z[q, entry] += rate * vz[q, entry]
        vz[q, entry] *= decay


@rare
def move_all(rule, t, x, gradient, moments, row_multiplicity, multiplicity, column_rate, num_tokens, heads, lr):
    """One step of any rule but SGD for every entry; the accumulated gradient is reset."""
    kind = x.dtype.type
    block = x.shape[0] // heads
    inner = block - 1 if num_tokens > 0 else block
    root = kind(math.sqrt(num_tokens))
    first = kind(lr / (1.0 - rule.beta_1 ** (t + 1)))
    second = kind(1.0 / math.sqrt(1.0 - rule.beta_2 ** (t + 1)))
    b1, b2 = kind(rule.beta_1), kind(rule.beta_2)
    square = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            g = gradient[i, j]
            if num_tokens > 0 and i % block < inner:
                g += gradient[i - i % block + inner, j] / root
            gradient[i, j] = column_rate[0, j] * g
            square += row_multiplicity[i] * multiplicity[0, j] * gradient[i, j] * gradient[i, j]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            g = gradient[i, j]
            gradient[i, j] = 0
            if rule.kind == ADAM_RULE:
                m = b1 * moments[0, i, j] + (kind(1) - b1) * g
                s = b2 * moments[1, i, j] + (kind(1) - b2) * g * g
                moments[0, i, j] = m
                moments[1, i, j] = s
                x[i, j] += first * m / (kind(math.sqrt(s)) * second + kind(rule.epsilon))
            elif rule.kind == SIGN_RULE:
                if g != 0:
                    x[i, j] += math.copysign(kind(lr), g)
            elif square > 0:
                x[i, j] += kind(lr / math.sqrt(square)) * g
    if num_tokens > 0:
        for head in range(heads):
            for j in range(x.shape[1]):
                total = kind(0)
                for i in range(head * block, head * block + inner):
                    total += row_multiplicity[i] * x[i, j]
                x[head * block + inner, j] = total / root
