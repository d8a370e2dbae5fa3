"""Nonsense of every kind, drawn from a seed, and what becomes of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scansnap.runtime.errors import ScanSnapError

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

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("no array")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __float__(self) -> float:
        raise RuntimeError("no float")


def _deep(levels: int = 2000) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


def _endless() -> list[Any]:
    endless: list[Any] = [1.0]
    endless.append(endless)
    return endless


NUMBERS = (
    *(math.nan, math.inf, -math.inf, 0.0, 0.5, 5e-324, 1e300, 1.5, np.float64(math.nan), 1j, Decimal("0.5")),
    Fraction(1, 3),
)
WHOLE = (0, 1, -1, 2**63 - 1, 2**63, 10**18, 10**400, 10**5000, np.int8(-1), np.uint64(2**63))
TEXT = (
    *("", "0.5", "nan", "none", "exact", "syn-small", "x.toml", "\0", "\ud800", "x" * 300, "/", "..", "~nouser/x"),
    *("/proc/nothing/x", b"bytes"),
    *HOSTILE_NAMES,
)
LISTS = (
    *([], [[]], [1.0, [2.0]], [None], [True, False], [1, "2"], [math.nan], [10**400], [0], [0, 1, 2]),
    *([[0.5, 0.5], [0.5, 0.5]], range(3), range(10**15), [{}], [Hostile()], (x for x in [1, 2]), _deep()),
    *(_endless(), ["a", "a"], [0] * 1000),
)
ARRAYS = (
    *(np.array([]), np.zeros((0, 3)), np.zeros((2, 2, 2)), np.array(1.0), np.array([True]), np.array([None])),
    *(np.array([1, "2"], object), np.zeros(3, complex), np.zeros(3, [("a", int)]), np.array([10**400], object)),
    *(np.zeros((1,) * 40), np.broadcast_to(np.float64(1), (10**6, 10**6)), np.full(3, 2**63, np.uint64)),
    *(np.ma.masked_all(3), np.array([-1, 0, 1])),
)
OBJECTS = (
    *(None, Ellipsis, object(), Hostile(), float, math, lambda: None, {}, {"a": [1]}, {1, 2}, datetime(2020, 1, 1)),
    *(Path("/nowhere"), slice(3), type("T", (), {})),
)


def _number(rng: np.random.Generator) -> Any:
    return float(rng.choice([-1, 1]) * 10.0 ** rng.uniform(-320, 308))


def _whole(rng: np.random.Generator) -> Any:
    return int(rng.choice([-1, 1])) * 10 ** int(rng.integers(0, 600)) + int(rng.integers(0, 100))


def _text(rng: np.random.Generator) -> Any:
    points = rng.choice([*range(256), 0x202E, 0x2028, 0xD800, 0x1F600, 0xFFFF], int(rng.integers(0, 40)))
    return "".join(map(chr, points))


def _list(rng: np.random.Generator, depth: int = 3) -> Any:
    if depth == 0 or rng.random() < 0.3:
        choices = [NUMBERS, WHOLE, TEXT, OBJECTS, (True, False)]
        source = choices[rng.integers(len(choices))]
        return source[rng.integers(len(source))]
    return [_list(rng, depth - 1) for _ in range(rng.integers(0, 4))]


def _array(rng: np.random.Generator) -> Any:
    shape = tuple(rng.integers(0, 5, rng.integers(0, 4)))
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-300, 300)
    kind = rng.choice(["f8", "f4", "i8", "u1", "?", "O", "U5", "c16"])
    with np.errstate(all="ignore"):
        return values.astype(kind)


def _object(rng: np.random.Generator) -> Any:
    return OBJECTS[rng.integers(len(OBJECTS))]


KINDS: Mapping[str, tuple[tuple[Any, ...], Callable[[np.random.Generator], Any]]] = {
    "numbers": (NUMBERS, _number),
    "whole numbers": (WHOLE, _whole),
    "booleans": ((True, False, np.True_, np.False_), lambda rng: bool(rng.integers(2))),
    "text": (TEXT, _text),
    "lists": (LISTS, lambda rng: [_list(rng) for _ in range(rng.integers(0, 5))]),
    "arrays": (ARRAYS, _array),
    "objects": (OBJECTS, _object),
}


def drawn(kind: str, count: int, seed: int) -> Iterator[Any]:
    """`count` values of a kind: those listed in a drawn order, then random ones."""
    listed, random = KINDS[kind]
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(listed))
    for i in range(count):
        yield listed[order[i]] if i < len(listed) else random(rng)


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
