"""Checks of the arguments of the theory's functions."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.base.errors import InputError, unknown

FloatArray = NDArray[np.float64]

Form = Literal["exact", "published"]
"""A formula as it is, and as the paper prints it."""


def numbers(name: str, values: ArrayLike, *, least: float | None = None, above: float | None = None) -> FloatArray:
    """`values` as finite float64 numbers, at least `least` or above `above`."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {values!r}: give a number or an array of numbers.") from None
    bad = ~np.isfinite(array)
    allowed = "finite numbers"
    if least is not None:
        bad |= array < least
        allowed += f" of at least {least:g}"
    if above is not None:
        bad |= array <= above
        allowed += f" above {above:g}"
    if bad.any():
        raise InputError(f"{name} holds {array[bad].flat[0]:g}: give {allowed}.")
    return array


def sizes(name: str, values: ArrayLike, *, least: int) -> FloatArray:
    """Whole numbers of at least `least`, as float64 for arithmetic."""
    array = numbers(name, values, least=least)
    if (array != np.floor(array)).any():
        raise InputError(f"{name} holds {array[array != np.floor(array)].flat[0]:g}: give whole numbers.")
    return array


def probability(name: str, values: ArrayLike) -> FloatArray:
    """Numbers strictly between 0 and 1."""
    array = numbers(name, values, above=0)
    if (array >= 1).any():
        raise InputError(f"{name} holds {array[array >= 1].flat[0]:g}: give a probability between 0 and 1.")
    return array


def check_form(form: str, allowed: tuple[str, ...] = get_args(Form)) -> None:
    """Refuse a form in which a formula does not come."""
    if form not in allowed:
        raise unknown("form", form, allowed)


def matrix(name: str, values: ArrayLike) -> FloatArray:
    """A matrix of finite numbers."""
    array = numbers(name, values)
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}: give a matrix with one row per class.")
    return array


def square(name: str, values: ArrayLike) -> FloatArray:
    """A square matrix of finite numbers."""
    array = matrix(name, values)
    if array.shape[0] != array.shape[1]:
        raise InputError(f"{name} has shape {array.shape}: give a square matrix, K x K.")
    return array
