"""Checks of arguments: what each takes, in plain form, and what it refuses in one sentence."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from scansnap.runtime.errors import InputError, ScanSnapError, short_repr, unknown
from scansnap.validation import checks

HUGE = 10**400  # beyond every float


def name(value: Any) -> str:
    return "huge" if value is HUGE else repr(value)


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)], ids=repr)
def test_whole_numbers(value: Any) -> None:
    assert checks.integer("n", value, least=3, most=3) == 3
    assert type(checks.integer("n", value)) is int


@pytest.mark.parametrize("value", [2, 1001, True, np.True_, 3.0, "3", None, [3]], ids=repr)
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        checks.integer("n", value, least=3, most=1000)
    assert str(caught.value) == f"n is {value!r}: give a whole number from 3 to 1,000."


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), Fraction(1, 2)], ids=repr)
def test_numbers_are_taken(value: Any) -> None:
    assert checks.number("x", value, least=0.5, most=0.5, below=1) == 0.5
    assert type(checks.number("x", value)) is float
    assert type(checks.number("x", np.int16(2))) is float


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, np.True_, "1", None, 1j, HUGE], ids=name)
def test_what_is_no_finite_number(value: Any) -> None:
    with pytest.raises(InputError, match=r"^x is .*: give a finite number\.$"):
        checks.number("x", value)


@pytest.mark.parametrize(
    ("limits", "value", "words"),
    [
        ({"least": 0}, -1, " of at least 0"),
        ({"least": 0, "most": 2}, 3, " from 0 to 2"),
        ({"least": 0, "most": 2}, -1e-9, " from 0 to 2"),
        ({"least": 0, "below": 1}, 1, " from 0 to below 1"),
    ],
)
def test_limits_are_said(limits: dict[str, float], value: float, words: str) -> None:
    with pytest.raises(InputError) as caught:
        checks.number("x", value, **limits)
    assert str(caught.value) == f"x is {value!r}: give a finite number{words}."


def test_flags() -> None:
    assert checks.flag("f", True) is checks.flag("f", np.True_) is True
    assert checks.flag("f", np.False_) is False
    for value in (0, 1, "yes", None):
        with pytest.raises(InputError, match=f"^f is {value!r}: give True or False.$"):
            checks.flag("f", value)


def test_names() -> None:
    assert checks.one_of("mode", "slow", ("slow", "fast")) == "slow"
    for value, hint in (
        ("fats", "did you mean 'fast'\\? "),
        (3, ""),
        (None, ""),
        (["slow"], "did you mean 'slow'\\? "),
    ):
        with pytest.raises(InputError, match=rf"^unknown mode '.*': {hint}choose one of slow, fast\.$"):
            checks.one_of("mode", value, (name for name in ("slow", "fast")))


@pytest.mark.parametrize("values", [2, np.int32(2), np.array(2.0), [2.0], (2,), range(2, 3), np.array([2], np.uint8)])
def test_arrays_of_numbers(values: Any) -> None:
    array = checks.series("r", values)
    assert array.tolist() == [2.0]
    assert array.dtype == np.float64


@pytest.mark.parametrize(
    "values",
    [None, [], "2", ["1", "2"], True, [True, False], np.True_, [[1, 2]], [1, [2]], [1, math.nan], {1: 2}, HUGE],
    ids=name,
)
def test_what_is_no_array_of_numbers(values: Any) -> None:
    with pytest.raises(InputError, match=r"^r is .*: give rates\.$"):
        checks.series("r", values, "rates")


@pytest.mark.parametrize("values", [5, np.int64(5), np.array(5), [5], np.array([5], np.uint64), range(5, 6)], ids=repr)
def test_seeds(values: Any) -> None:
    assert checks.seeds(values) == (5,)
    assert type(checks.seeds(values)[0]) is int


def test_what_is_no_seed() -> None:
    assert checks.seeds([0, 2**63 - 1]) == (0, 2**63 - 1)
    for value in (-1, 2**63, 1.5, True, "7", None, np.float64(1)):
        for values in (value, [0, value]):
            with pytest.raises(InputError, match=r"^a seed is .*: give whole numbers from 0 to 2\^63 - 1\.$"):
                checks.seeds(values)
    with pytest.raises(InputError, match=r"^seeds is empty: give one seed per run, or a single one\.$"):
        checks.seeds([])


def test_lists_are_told_from_values() -> None:
    assert all(checks.is_list(value) for value in ([], (1,), range(2), np.zeros(1)))
    assert not any(checks.is_list(value) for value in ("ab", {"a": 1}, {1}, 3, None))


def test_sentences_stay_short() -> None:
    assert short_repr([1, 2]) == "[1, 2]"
    assert short_repr("a" * 100) == "'" + "a" * 56 + "..."
    assert checks.listed(np.arange(3)) == "0, 1, 2"
    assert checks.listed(range(9), most=2) == "0, 1, ..."


def test_errors_can_be_told_apart() -> None:
    error = unknown("color", "blu", ["red", "blue"])
    assert isinstance(error, ScanSnapError)
    assert isinstance(error, ValueError)
    assert str(error) == "unknown color 'blu': did you mean 'blue'? choose one of red, blue."
    assert str(unknown("color", "x", ["red"])) == "unknown color 'x': choose one of red."
    assert "did you mean" not in str(unknown("option", "schedule", ["seq_len", "steps"]))  # not near enough
    assert str(unknown("claim", "lemma_99", ["lemma_5"])) == "unknown claim 'lemma_99': choose one of lemma_5."
    assert "did you mean 'lemma_9'?" in str(unknown("claim", "lemma_99", ["lemma_9"]))


def test_numbers_say_what_is_allowed() -> None:
    assert checks.numbers("x", [1, 2]).dtype == np.float64
    for bad, limits, sentence in (
        (math.nan, {}, "x holds nan: give finite numbers."),
        ([1.0, -math.inf], {}, "x holds -inf: give finite numbers."),
        ([3.0, 1.0, 2.0], {"least": 2.5}, "x holds 1: give finite numbers of at least 2.5."),
        ([3.0, 2.5], {"above": 2.5}, "x holds 2.5: give finite numbers above 2.5."),
        ("many", {}, "x is 'many': give a number or an array of numbers."),
        ([[1], [1, 2]], {}, "x is [[1], [1, 2]]: give a number or an array of numbers."),
    ):
        with pytest.raises(InputError) as caught:
            checks.numbers("x", bad, **limits)
        assert str(caught.value) == sentence
    with pytest.raises(InputError, match=r"^x holds 2\.5: give whole numbers\.$"):
        checks.sizes("x", [2, 2.5, 3.5], least=1)
    assert checks.sizes("x", [1, 2], least=1).tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match=r"^x holds 1\.5: give a probability between 0 and 1\.$"):
        checks.probability("x", [0.5, 1.5])
    with pytest.raises(InputError, match=r"^x has shape \(1, 1, 1\): give a matrix with one row per class\.$"):
        checks.matrix("x", [[[1.0]]])
    with pytest.raises(InputError, match=r"^x has shape \(2, 1\): give a square matrix, K x K\.$"):
        checks.square("x", [[1.0], [2.0]])
