"""Nonsense, good values of every argument type, and what becomes of a call."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scansnap.runtime.errors import ScanSnapError
from scansnap.validation import argument_types as types

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "$\\frac{$",
    "$x^2$",
    "[bold red]x[/]",
    "[link=file:///etc/passwd]x[/link]",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://x\x07y",
    "\u202eabc",
    "a\nb",
    "a\tb",
    "\x9b31m",
    "'; DROP TABLE x; --",
    "{0} {name} %s %(x)s",
    "W" * 10_000,
    "\u0301" * 50,
    "\N{ZERO WIDTH JOINER}",
    "\N{HUGGING FACE}",
    "-x",
)
"""Names that are markup, commands or nothing to look at somewhere."""


class Hostile:
    """An object that raises whatever is done with it."""

    def _refuse(self, *_: object, **__: object) -> Any:
        raise RuntimeError("no")

    __repr__ = __array__ = __len__ = __float__ = _refuse


DEEP: list[Any] = []
for _ in range(2000):
    DEEP = [DEEP]
ENDLESS: list[Any] = [1.0]
ENDLESS.append(ENDLESS)

PLAIN = (
    *(math.nan, math.inf, -math.inf, 0.0, 0.5, -0.5, 5e-324, 1e300, 1.5),
    *(0, 1, -1, 2, 2**63 - 1, 2**63, 10**18, 10**400),
    *("", "0.5", "nan", "none", "exact", "syn-small", "x.toml", "0:5", "5:0", "log:1:9:3", "a\0b", "\ud800", "x" * 300),
    *("/", "..", "~nouser/x", "/proc/nothing/x", *HOSTILE_NAMES),
    *(True, False, None, [], [[]], {}, [1.0, [2.0]], [None], [True, False], [1, "2"], [math.nan], [10**400], [0], [{}]),
    *([0, 1, 2], [0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], ["a", "a"], [0] * 1000, {"a": [1]}, ["sgd", "adam"]),
)
"""Values that a file can hold too."""

OBJECTS = (
    *(np.float64(math.nan), 1j, Decimal("0.5"), Fraction(1, 3), 10**5000, np.int8(-1), np.uint64(2**63), np.True_),
    *(b"bytes", range(3), range(10**15), [Hostile()], (x for x in [1, 2]), DEEP, ENDLESS, {1, 2}, slice(3)),
    *(np.array([]), np.zeros((0, 3)), np.zeros((2, 2, 2)), np.array(1.0), np.array([True]), np.array([None])),
    *(np.array([1, "2"], object), np.zeros(3, complex), np.zeros(3, [("a", int)]), np.array([10**400], object)),
    *(np.zeros((1,) * 40), np.broadcast_to(np.float64(1), (10**6, 10**6)), np.full(3, 2**63, np.uint64)),
    *(np.ma.masked_all(3), np.array([-1, 0, 1]), Ellipsis, object(), Hostile(), float, math, lambda: None),
    *(datetime(2020, 1, 1), Path("/nowhere"), type("T", (), {})),
)
LISTED = (*PLAIN, *OBJECTS)


def nonsense(rng: np.random.Generator) -> Any:
    """A listed value, or a random number, whole number, text, array or list."""
    kind = rng.integers(10)
    if kind < 5:
        return LISTED[rng.integers(len(LISTED))]
    if kind == 5:
        return float(rng.choice([-1, 1]) * 10.0 ** rng.uniform(-320, 308))
    if kind == 6:
        return int(rng.choice([-1, 1])) * 10 ** int(rng.integers(0, 600)) + int(rng.integers(0, 100))
    if kind == 7:
        points = rng.choice([*range(256), 0x202E, 0x2028, 0xD800, 0x1F600, 0xFFFF], int(rng.integers(0, 40)))
        return "".join(map(chr, points))
    if kind == 8:
        values = rng.standard_normal(rng.integers(0, 5, rng.integers(0, 4))) * 10.0 ** rng.uniform(-300, 300)
        with np.errstate(all="ignore"):
            return values.astype(rng.choice(["f8", "f4", "i8", "u1", "?", "O", "U5", "c16"]))
    return [nonsense(rng) for _ in range(rng.integers(0, 4))]


def good(argument: types.ArgumentType | None, value: Any, rng: np.random.Generator) -> Any:
    """A value that an argument type allows, near `value` if it is a number; `value` itself where the type is open."""
    match argument:
        case types.OptionalType() if rng.random() < 0.5 or (value is None and isinstance(argument.inner, OPEN)):
            return None
        case types.OptionalType():
            return good(argument.inner, value, rng)
        case types.FlagType():
            return bool(rng.integers(2))
        case types.ChoiceType():
            return str(rng.choice(argument.names))
        case types.MemberType():
            return str(rng.choice(list(argument.members)))
        case types.IntegerType() if not isinstance(value, list | tuple | range):
            least = max(int(argument.limits.get("least", 0)), (value or 0) - 1)
            return int(rng.integers(least, min(int(argument.limits.get("most", 2**31)), least + 3) + 1))
        case types.NumberType() if not isinstance(value, list | tuple | range):
            return float(value if value is not None else 1.0) * float(rng.uniform(0.5, 1.0))
    if isinstance(value, float):
        return value * float(rng.uniform(0.5, 1.0))
    return value + int(rng.integers(0, 2)) if isinstance(value, int) and not isinstance(value, bool) else value


OPEN = (types.InstanceType, types.PathType, types.CallableType, types.SequenceType, types.EitherType, types.ArrayType)
"""Types that do not say by themselves what a good value is."""


def attempt(call: Callable[[], Any], what: str) -> str:
    """What a call comes to: "valid", "refused" in one sentence, or something that must not be, in capitals."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call()
    except ScanSnapError as error:
        sentence = str(error)
        return "refused" if "\n" not in sentence and sentence.endswith((".", "?")) else f"SENTENCE {what}: {sentence}"
    except Exception as error:
        return f"TRACEBACK {what}: {type(error).__name__}: {error}"[:400]
    if isinstance(result, xr.Dataset) and {"status", "loss"} <= set(result.variables):
        loss = result["loss"].isel(step=slice(1, None)) if result.attrs["kind"] == "text" else result["loss"]
        done = loss.where(result["status"] == "ok", 0.0)  # the loss of text is the mean since the last record
        if not np.isfinite(done).all():
            return f"NOT FINITE {what}"
    return "valid"
