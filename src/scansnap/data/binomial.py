"""Exact binomial variates from a counter-based stream, at a cost that does not grow with the number of trials.

Small means are inverted term by term; larger ones use the transformed rejection of Hörmann, "The generation of binomial
random variates" (1993), algorithm BTRS.  Both are exact up to float64 arithmetic.
"""

from __future__ import annotations

import math

from scansnap.data.random_stream import uniform
from scansnap.runtime.inner_function import inner

INVERSION_MEAN = 10.0
"""Below this mean, inversion is cheaper and BTRS is not valid."""


@inner(forceinline=True)
def binomial(trials, p, key, counter):
    """One Binomial(trials, p) variate and the counter after the words it used."""
    if trials <= 0 or p <= 0.0:
        return 0, counter
    if p >= 1.0:
        return trials, counter
    if p > 0.5:
        value, counter = binomial_half(trials, 1.0 - p, key, counter)
        return trials - value, counter
    return binomial_half(trials, p, key, counter)


@inner(forceinline=True)
def binomial_half(trials, p, key, counter):
    """The same for 0 < p <= 1/2."""
    if trials * p < INVERSION_MEAN:
        return _invert(trials, p, key, counter)
    return _reject(trials, p, key, counter)


@inner(forceinline=True)
def _invert(trials, p, key, counter):
    odds = p / (1.0 - p)
    none = math.exp(trials * math.log1p(-p))
    while True:
        u = uniform(key, counter)
        counter += 1
        term = none
        value = 0
        while u > term:
            u -= term
            value += 1
            if value > trials:
                break  # rounding left a remainder beyond the last term: draw again
            term *= odds * (trials - value + 1) / value
        if value <= trials:
            return value, counter


@inner(forceinline=True)
def _reject(trials, p, key, counter):
    spread = math.sqrt(trials * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = trials * p + 0.5
    v_r = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    log_odds = math.log(p / (1.0 - p))
    mode = math.floor((trials + 1) * p)
    log_mode = math.lgamma(mode + 1) + math.lgamma(trials - mode + 1)
    while True:
        u = uniform(key, counter) - 0.5
        v = uniform(key, counter + 1)
        counter += 2
        us = 0.5 - abs(u)
        value = math.floor((2.0 * a / us + b) * u + c)
        if value < 0 or value > trials:
            continue
        if us >= 0.07 and v <= v_r:
            return int(value), counter
        v = math.log(v * alpha / (a / (us * us) + b))
        if v <= log_mode - math.lgamma(value + 1) - math.lgamma(trials - value + 1) + (value - mode) * log_odds:
            return int(value), counter
