"""Checks of arguments.

Each check returns the value in plain form, or raises an `InputError` that says what was given and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.base.errors import InputError, unknown

MOST = 10**9
"""The largest whole number allowed for an argument without a limit of its own."""


def whole(name: str, value: object, *, least: int = 0, most: int = MOST) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InputError(f"{name} is {value!r}: give a whole number from {least:,} to {most:,}.")
    return int(value)


def number(
    name: str, value: Any, *, least: float = -math.inf, most: float = math.inf, below: float = math.inf
) -> float:
    """A finite number from `least` to `most`, less than `below`."""
    if not _is_finite(value) or not least <= value <= most or not value < below:
        raise InputError(f"{name} is {shortened(value)}: give a finite number{_range(least, most, below)}.")
    return float(value)


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _range(least: float, most: float, below: float) -> str:
    start = "" if least == -math.inf else f" of at least {least:g}" if most == below == math.inf else f" from {least:g}"
    return start + ("" if most == math.inf else f" to {most:g}") + ("" if below == math.inf else f" to below {below:g}")


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} is {value!r}: give True or False.")
    return bool(value)


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """One of the allowed names."""
    names = list(allowed)
    if not isinstance(value, str) or value not in names:
        raise unknown(name, value, names)
    return value


def numbers(name: str, values: object, what: str = "numbers") -> NDArray[np.float64]:
    """A one-dimensional array of finite numbers, from one number or a sequence of them."""
    try:
        array = np.atleast_1d(np.asarray(values))
        array = array.astype(np.float64) if array.dtype.kind in "iufO" else np.empty((0, 0))  # no bools, no text
    except (OverflowError, TypeError, ValueError):
        array = np.empty((0, 0))
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise InputError(f"{name} is {shortened(values)}: give {what}.")
    return array


def seeds(values: Any) -> tuple[int, ...]:
    """One seed, or a sequence of them."""
    if isinstance(values, np.ndarray):
        values = np.atleast_1d(values)
    listed = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if not listed:
        raise InputError("seeds is empty: give one seed per run, or a single one.")
    for seed in listed:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
            raise InputError(f"a seed is {seed!r}: give whole numbers from 0 to 2^63 - 1.")
    return tuple(int(seed) for seed in listed)


def is_list(value: object) -> bool:
    """Whether a value is a list of values: a list, a tuple, a range or an array."""
    return isinstance(value, list | tuple | range | np.ndarray)


def shortened(value: object, most: int = 60) -> str:
    """A value as text for a sentence, cut if it is long."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(ids: Sequence[int] | NDArray[np.integer], most: int = 8) -> str:
    """The first few of a list of ids."""
    return ", ".join(str(int(i)) for i in ids[:most]) + (", ..." if len(ids) > most else "")
