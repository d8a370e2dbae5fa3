"""The type of an argument follows from its annotation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numpy.typing import ArrayLike
from typing_extensions import TypeAliasType

from scansnap.runtime.errors import InputError
from scansnap.validation.argument_types import (
    ARRAYS,
    ArgumentType,
    ArrayType,
    NumberType,
    OptionalType,
    PathType,
    SequenceType,
    argument_type_of,
)

NAMED = TypeAliasType("NAMED", TypeAliasType("INNER", ArrayLike))
"""A name for a name, as `type NAMED = ArrayLike` makes it where NumPy names ArrayLike itself so."""


def test_array_like_is_a_union_of_types() -> None:
    assert len(ARRAYS) > 3


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (ArrayLike, ArrayType()),
        (ArrayLike | None, OptionalType(ArrayType())),
        (NAMED, ArrayType()),
        (NAMED | None, OptionalType(ArrayType())),
        (str | Path, PathType()),
        (str | Path | None, OptionalType(PathType())),
        (float, NumberType()),
        (tuple[str, ...], SequenceType(ArgumentType())),
        (tuple[str, str], SequenceType(ArgumentType(), count=2)),
        (str, ArgumentType()),
        (object, None),
    ],
)
def test_the_argument_type_of_an_annotation(hint: Any, expected: ArgumentType | None) -> None:
    assert argument_type_of(hint) == expected


@pytest.mark.parametrize("value", [3, "ab", ["a"], ["a", "b", "c"], ["a", 3]])
def test_a_pair_is_two_values_of_its_type(value: Any) -> None:
    pair = argument_type_of(tuple[str, str])
    assert pair is not None
    assert pair.check("x", ["a", "b"]) == ("a", "b")
    with pytest.raises(InputError, match=r"^x (entry )?is .*: give (a list of 2 values, each )?text\.$"):
        pair.check("x", value)
