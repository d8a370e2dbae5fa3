"""Checks of arguments: what each takes, in plain form, and what it refuses in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from scansnap.runtime.errors import InputError, ScanSnapError, short_repr, unknown
from scansnap.validation import checks

HUGE = 10**400  # beyond every float

WHOLE = partial(checks.integer, "x", least=3, most=1000)
HALF = partial(checks.number, "x", least=0.5, most=0.5, below=1)
RATES = partial(checks.series, "x", what="rates")
MODE = partial(checks.one_of, "x", allowed=("slow", "fast"))


@pytest.mark.parametrize(
    ("check", "values", "plain"),
    [
        (WHOLE, [3, np.int8(3), np.uint64(3)], 3),
        (HALF, [0.5, np.float32(0.5), Fraction(1, 2)], 0.5),
        (partial(checks.number, "x"), [2, np.int16(2)], 2.0),
        (partial(checks.flag, "x"), [True, np.True_], True),
        (partial(checks.flag, "x"), [False, np.False_], False),
        (MODE, ["slow"], "slow"),
        (checks.seeds, [5, np.int64(5), np.array(5), [5], np.array([5], np.uint64), range(5, 6)], (5,)),
        (checks.seeds, [[0, 2**63 - 1]], (0, 2**63 - 1)),
    ],
)
def test_what_is_taken(check: Callable[[Any], Any], values: list[Any], plain: Any) -> None:
    """The value and its type, also inside a tuple."""
    for value in values:
        assert repr(check(value)) == repr(plain)


@pytest.mark.parametrize(
    ("check", "values", "sentence"),
    [
        (WHOLE, [2, 1001, True, np.True_, 3.0, "3", None, [3]], "x is {}: give a whole number from 3 to 1,000."),
        (partial(checks.integer, "x", most=9), [True, np.True_, 0.0], "x is {}: give a whole number from 0 to 9."),
        (
            partial(checks.number, "x"),
            [math.nan, math.inf, -math.inf, True, np.True_, "1", None, 1j, HUGE],
            "x is {}: give a finite number.",
        ),
        (partial(checks.number, "x", least=0), [-1], "x is {}: give a finite number of at least 0."),
        (partial(checks.number, "x", least=0, most=2), [3, -1e-9], "x is {}: give a finite number from 0 to 2."),
        (partial(checks.number, "x", least=0, below=1), [1], "x is {}: give a finite number from 0 to below 1."),
        (partial(checks.flag, "x"), [0, 1, "yes", None], "x is {}: give True or False."),
        (MODE, ["fats"], "unknown x {}: did you mean 'fast'? choose one of slow, fast."),
        (MODE, ["other"], "unknown x {}: choose one of slow, fast."),
        (MODE, [3, None], "unknown x '{}': choose one of slow, fast."),
        (
            RATES,
            [None, [], "2", ["1", "2"], True, [True, False], np.True_, [[1, 2]], [1, [2]], [1, math.nan], {1: 2}, HUGE],
            "x is {}: give rates.",
        ),
        (checks.seeds, [-1, 2**63, 1.5, True, "7", None], "a seed is {}: give whole numbers from 0 to 2^63 - 1."),
        (checks.seeds, [[]], "seeds is empty: give one seed per run, or a single one."),
        (partial(checks.numbers, "x"), ["many", [[1], [1, 2]]], "x is {}: give a number or an array of numbers."),
    ],
)
def test_what_is_refused(check: Callable[[Any], Any], values: list[Any], sentence: str) -> None:
    for value in values:
        with pytest.raises(InputError) as caught:
            check(value)
        assert str(caught.value) == sentence.format(short_repr(value))


def test_one_of_several_seeds_is_refused_too() -> None:
    with pytest.raises(InputError, match=r"^a seed is 1\.5: give whole numbers"):
        checks.seeds([0, 1.5])


@pytest.mark.parametrize("values", [2, np.int32(2), np.array(2.0), [2.0], (2,), range(2, 3), np.array([2], np.uint8)])
def test_arrays_of_numbers(values: Any) -> None:
    array = RATES(values)
    assert array.tolist() == [2.0]
    assert array.dtype == np.float64


@pytest.mark.parametrize(
    ("check", "values", "sentence"),
    [
        (checks.numbers, math.nan, "x holds nan: give finite numbers."),
        (checks.numbers, [1.0, -math.inf], "x holds -inf: give finite numbers."),
        (partial(checks.numbers, least=2.5), [3, 1, 2], "x holds 1: give finite numbers of at least 2.5."),
        (partial(checks.numbers, above=2.5), [3, 2.5], "x holds 2.5: give finite numbers above 2.5."),
        (partial(checks.sizes, least=1), [2, 2.5, 3.5], "x holds 2.5: give whole numbers."),
        (checks.probability, [0.5, 1.5], "x holds 1.5: give a probability between 0 and 1."),
        (checks.matrix, [[[1.0]]], "x has shape (1, 1, 1): give a matrix with one row per class."),
        (checks.square, [[1.0], [2.0]], "x has shape (2, 1): give a square matrix, K x K."),
    ],
)
def test_arrays_say_what_is_allowed(check: Callable[..., Any], values: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        check("x", values)
    assert str(caught.value) == sentence


def test_lists_are_told_from_values() -> None:
    assert all(checks.is_list(value) for value in ([], (1,), range(2), np.zeros(1)))
    assert not any(checks.is_list(value) for value in ("ab", {"a": 1}, {1}, 3, None))


def test_sentences_stay_short() -> None:
    assert short_repr([1, 2]) == "[1, 2]"
    assert short_repr("a" * 100) == "'" + "a" * 56 + "..."
    assert checks.listed(np.arange(3)) == "0, 1, 2"
    assert checks.listed(range(9), most=2) == "0, 1, ..."


def test_an_unknown_name_has_the_nearest_one_in_its_error() -> None:
    error = unknown("color", "blu", ["red", "blue"])
    assert isinstance(error, ScanSnapError)
    assert isinstance(error, ValueError)
    assert str(error) == "unknown color 'blu': did you mean 'blue'? choose one of red, blue."
    assert "did you mean" not in str(unknown("option", "schedule", ["seq_len", "steps"]))  # not near enough
    assert str(unknown("claim", "lemma_99", ["lemma_5"])) == "unknown claim 'lemma_99': choose one of lemma_5."
    assert "did you mean 'lemma_9'?" in str(unknown("claim", "lemma_99", ["lemma_9"]))
