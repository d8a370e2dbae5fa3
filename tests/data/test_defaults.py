"""A default is the value that is written out for it here: leaving it out gives the same, another value does not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.data import positioned_classes, synthetic

Row = tuple[Callable[..., Any], dict[str, Any], dict[str, tuple[Any, Any]]]
"""A function, arguments it must have, and for each default the value that it stands for and another one."""


def same(first: Any, second: Any) -> bool:
    """Whether two results are equal, bit by bit."""
    if isinstance(first, ss.SequenceClasses):
        return first == second
    if is_dataclass(first):
        return all(same(getattr(first, field.name), getattr(second, field.name)) for field in fields(first))
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, str) or first is None:
        return first == second
    values = np.asarray(first)
    return np.array_equal(values, second, equal_nan=values.dtype.kind == "f")


def check_defaults(row: Row) -> None:
    function, needed, defaults = row
    plain = function(**needed)
    for name, (value, other) in defaults.items():
        assert same(plain, function(**needed, **{name: value})), name
        assert not same(plain, function(**needed, **{name: other})), name


def unlisted(module: ModuleType, rows: list[Row]) -> set[tuple[str, str]]:
    """Functions and defaults of a module that no row has."""
    listed = {(function.__name__, name) for function, _, defaults in rows for name in defaults}
    functions = [f for name, f in vars(module).items() if inspect.isfunction(f) and not name.startswith("_")]
    return {
        (function.__name__, name)
        for function in functions
        if function.__module__.startswith(module.__name__)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not parameter.empty
    } - listed


ROWS: list[Row] = [
    (
        ss.synthetic,
        {"num_query": 2, "next_per_query": 2},
        {"num_common": (10, 9), "num_distinct": (10, 9), "vocab_size": (56, 57)},
    ),
    (ss.syn_medium, {}, {"num_query": (3, 4)}),
    (
        ss.local_common,
        {},
        {"num_distinct": (8, 7), "vocab_size": (1600, 1601), "shared": (1.0, 0.5), "common": (1.0, 0.5)},
    ),
    (ss.single_common, {}, {"num_classes": (10, 9), "num_distinct": (5, 4), "vocab_size": (1000, 1001)}),
    (
        ss.near_distinct,
        {},
        {
            "num_positions": (16, 15),
            "num_query": (1, 2),
            "next_per_query": (2, 3),
            "num_common": (10, 9),
            "num_distinct": (5, 4),
            "near": (0.5, 0.4),
            "decay": (0.7, 0.6),
        },
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].__name__)
def test_defaults_are_those_written_out(row: Row) -> None:
    check_defaults(row)


@pytest.mark.parametrize("module", [synthetic, positioned_classes], ids=lambda module: module.__name__)
def test_every_default_is_listed(module: ModuleType) -> None:
    assert unlisted(module, ROWS) == set()
