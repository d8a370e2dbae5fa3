"""Checks of arguments, one for each type.

Each check returns the value in plain form, or raises an `InputError` that says what was given and what is allowed.
`argument_types.py` finds the check for an annotation, and `validate.py` applies the checks to whole signatures.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence, Sized
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.runtime.errors import InputError, short_repr, unknown

FloatArray = NDArray[np.float64]

LARGEST_INTEGER = 10**9
"""The largest whole number allowed for an argument without a limit of its own."""

MOST_SEED = 2**63 - 1

LONGEST_NAME = 255
"""Bytes in the name of a file, which most file systems limit to this."""

NOT_TEXT = re.compile("[\0\ud800-\udfff]")
"""NUL characters and surrogates, which cannot be written to a text file."""

MOST_ENTRIES = 10**7
"""The most entries of a list that is iterated over."""

DEEPEST = 32
"""How deep lists may be nested, and the most dimensions of an array."""


# --- one value ----------------------------------------------------------------------------------------------------


def integer(name: str, value: object, *, least: int = 0, most: int = LARGEST_INTEGER) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InputError(f"{name} is {short_repr(value)}: give a whole number from {least:,} to {most:,}.")
    return int(value)


def number(
    name: str, value: Any, *, least: float = -math.inf, most: float = math.inf, below: float = math.inf
) -> float:
    """A finite number from `least` to `most`, less than `below`."""
    if not _is_finite(value) or not least <= value <= most or not value < below:
        raise InputError(f"{name} is {short_repr(value)}: give a finite number{_range(least, most, below)}.")
    return float(value)


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _range(least: float, most: float, below: float) -> str:
    start = "" if least == -math.inf else f" of at least {least:g}" if most == below == math.inf else f" from {least:g}"
    return start + ("" if most == math.inf else f" to {most:g}") + ("" if below == math.inf else f" to below {below:g}")


def contextual_length(seq_len: float) -> int:
    """T - 1, the contextual tokens of a sequence of finite length T."""
    real = isinstance(seq_len, Real) and not isinstance(seq_len, bool)
    if not real or not 2 <= seq_len < 2**31 or seq_len != int(seq_len):
        raise InputError(
            f"seq_len is {short_repr(seq_len)}: give a whole number from 2 (one contextual token and the query) to "
            "2^31, or math.inf where sequences may be infinitely long."
        )
    return int(seq_len) - 1


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} is {short_repr(value)}: give True or False.")
    return bool(value)


def text(name: str, value: object) -> str:
    """Text that can be written to a file: without NUL characters and surrogates."""
    if not isinstance(value, str):
        raise InputError(f"{name} is {short_repr(value)}: give text.")
    if NOT_TEXT.search(value):
        raise InputError(f"{name} is {short_repr(value)}: give text without NUL characters and surrogates.")
    return value


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """One of the allowed names."""
    names = list(allowed)
    if not isinstance(value, str) or value not in names:
        raise unknown(name, value, names)
    return value


def path(name: str, value: Any) -> Any:
    """The path of a file or a folder that can exist, as text or as an object."""
    written = text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)
    if not written or any(len(part.encode()) > LONGEST_NAME for part in Path(written).parts):
        raise InputError(f"{name} is {short_repr(written)}: give a path whose names have 1 to {LONGEST_NAME} bytes.")
    return value


def expand_user(name: str, value: str | Path) -> Path:
    """A path in which ~ is a user's home."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise InputError(f"{name} is {short_repr(str(value))}: there is no such home; write ./~ for a name.") from None


# --- many values --------------------------------------------------------------------------------------------------


def any_numbers(name: str, values: ArrayLike) -> FloatArray:
    """`values` as float64 numbers of any shape, NaN and infinity among them."""
    array = float_array(values)
    if array is None:
        raise InputError(f"{name} is {short_repr(values)}: give a number or an array of numbers.")
    return array


def numbers(name: str, values: ArrayLike, *, least: float | None = None, above: float | None = None) -> FloatArray:
    """`values` as finite float64 numbers of any shape, at least `least` or above `above`."""
    array = any_numbers(name, values)
    low = -math.inf if least is None else least
    if array.ndim == 0:  # formulas are called in loops, where NumPy's checks of one number would take half the time
        number = array.item()
        if math.isfinite(number) and number >= low and (above is None or number > above):
            return array
    good = np.isfinite(array) & (array >= low)
    if above is not None:
        good &= array > above
    if not good.all():
        allowed = "finite numbers" + ("" if least is None else f" of at least {least:g}")
        allowed += "" if above is None else f" above {above:g}"
        raise InputError(f"{name} holds {array[~good].flat[0]:g}: give {allowed}.")
    return array


def series(name: str, values: object, what: str = "numbers") -> FloatArray:
    """A one-dimensional array of finite numbers, from one number or a sequence of them."""
    array = float_array(values)
    if array is None or array.ndim > 1 or not array.size or not np.isfinite(array).all():
        raise InputError(f"{name} is {short_repr(values)}: give {what}.")
    return np.atleast_1d(array)


def sizes(name: str, values: ArrayLike, *, least: int) -> FloatArray:
    """Whole numbers of at least `least`, as float64 for arithmetic."""
    array = numbers(name, values, least=least)
    if array.ndim == 0 and array.item().is_integer():
        return array
    if (array != np.floor(array)).any():
        raise InputError(f"{name} holds {array[array != np.floor(array)].flat[0]:g}: give whole numbers.")
    return array


def probability(name: str, values: ArrayLike) -> FloatArray:
    """Numbers strictly between 0 and 1."""
    array = numbers(name, values, above=0)
    if (array >= 1).any():
        raise InputError(f"{name} holds {array[array >= 1].flat[0]:g}: give a probability between 0 and 1.")
    return array


def vector(name: str, values: ArrayLike, *, least: float | None = None, above: float | None = None) -> FloatArray:
    """Finite numbers in a row, at least one."""
    array = np.atleast_1d(numbers(name, values, least=least, above=above))
    if array.ndim != 1 or not array.size:
        raise InputError(f"{name} has shape {array.shape}: give numbers in a row, at least one.")
    return array


def matrix(name: str, values: ArrayLike) -> FloatArray:
    """A matrix of finite numbers."""
    array = numbers(name, values)
    if array.ndim != 2 or not array.size:
        raise InputError(f"{name} has shape {array.shape}: give a matrix with one row per class.")
    return array


def square(name: str, values: ArrayLike) -> FloatArray:
    """A square matrix of finite numbers."""
    array = matrix(name, values)
    if array.shape[0] != array.shape[1]:
        raise InputError(f"{name} has shape {array.shape}: give a square matrix, K x K.")
    return array


def ids(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Ids of tokens: whole numbers of at least 0, in the shape they are given in."""
    array = float_array(values)
    if array is None or (
        array.size and not ((array >= 0) & (array <= LARGEST_INTEGER) & (array == np.floor(array))).all()
    ):
        raise InputError(f"{name} is {short_repr(values)}: give ids of tokens, whole numbers from 0 on.")
    return array.astype(np.int64)


def float_array(values: object) -> FloatArray | None:
    """`values` as float64; None for text, booleans, ragged lists, and whole numbers beyond every float."""
    if type(values) is float:
        return np.array(values)
    if isinstance(values, list | tuple) and not _may_be_numbers(values, DEEPEST):
        return None
    if isinstance(values, range) and not is_iterable(values):
        return None
    try:
        array = np.asarray(values)
        if array.ndim > DEEPEST or array.size > LARGEST_INTEGER:
            return None
        if array.dtype == np.float64:
            return array
        if array.dtype.kind == "O" and not all(isinstance(value, Real) for value in array.flat):
            return None
        return array.astype(np.float64) if array.dtype.kind in "iufO" else None
    except Exception:  # an object may raise anything as it is made an array
        return None


def _may_be_numbers(values: list[Any] | tuple[Any, ...], depth: int) -> bool:
    """Whether nested lists are free of booleans, which NumPy takes for numbers, and not nested without end."""
    types = set(map(type, values))
    if bool in types or np.bool_ in types or not depth:
        return False
    if not types & {list, tuple}:
        return True
    return all(_may_be_numbers(inner, depth - 1) for inner in values if isinstance(inner, list | tuple))


def seeds(values: Any) -> tuple[int, ...]:
    """One seed, or a sequence of them."""
    if isinstance(values, np.ndarray):
        values = np.atleast_1d(values)
    if isinstance(values, range) and values and values[-1] - values[0] >= MOST_ENTRIES:
        raise InputError(f"seeds is {short_repr(values)}: give up to {MOST_ENTRIES:,} of them.")
    listed = list(values) if is_iterable(values) and not isinstance(values, str) else [values]
    if not listed:
        raise InputError("seeds is empty: give one seed per run, or a single one.")
    for seed in listed:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= MOST_SEED:
            raise InputError(f"a seed is {short_repr(seed)}: give whole numbers from 0 to 2^63 - 1.")
    return tuple(int(seed) for seed in listed)


def is_iterable(value: object) -> bool:
    """Whether a value is a finite iterable."""
    if isinstance(value, np.ndarray) and not value.ndim:
        return False
    try:
        return isinstance(value, Iterable) and not (isinstance(value, Sized) and len(value) > MOST_ENTRIES)
    except OverflowError:  # a range that is longer than Python counts
        return False


def is_list(value: object) -> bool:
    """Whether a value is a list of values: a list, a tuple, a range or an array."""
    return isinstance(value, list | tuple | range) or (isinstance(value, np.ndarray) and value.ndim > 0)


# --- values in sentences ------------------------------------------------------------------------------------------


def type_name(value: object) -> str:
    """The name of a value's class."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else type(value).__name__


def listed(ids: Sequence[int] | NDArray[np.integer], most: int = 8) -> str:
    """The first few of a list of ids."""
    return ", ".join(str(int(i)) for i in ids[:most]) + (", ..." if len(ids) > most else "")
