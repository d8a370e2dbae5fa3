"""Every assumption just inside and just outside its limit, with the numbers that its advice gives."""

from __future__ import annotations

import math

import pytest

import scansnap as ss
from scansnap import theory
from scansnap.runtime.errors import InputError
from scansnap.theory.assumptions import Assumption

RATES = {"lr_y": 0.5, "lr_z": 0.0005}


def pair(overlap: float, vocab_size: int = 1000, weights: list[float] | None = None) -> ss.SequenceClasses:
    """Two classes with one distinct token each and one common token, f_0 . f_1 = o: the eigenvalues of E are +-o."""
    ratio = math.sqrt(overlap / (1 - overlap))  # of the common token's probability to the distinct one's
    common = ratio / (1 + ratio)
    tokens = [[0, 1], [0, 2]] if overlap else [[1], [2]]
    probs = [[common, 1 - common]] * 2 if overlap else [[1.0]] * 2
    return ss.SequenceClasses.from_supports(
        tokens=tokens, probs=probs, query=[3, 3], next_token=[4, 5], vocab_size=vocab_size, weights=weights
    )


def put(name: str, classes: ss.SequenceClasses, **options: object) -> Assumption:
    assumption = theory.assumptions(classes, **{**RATES, **options})[name]
    assert assumption.id == name
    return assumption


def test_weak_overlap_is_one_over_the_number_of_classes() -> None:
    inside, outside = put("weak_overlap", pair(0.4999)), put("weak_overlap", pair(0.5001))
    assert (inside.met, outside.met) == (True, False)
    assert inside.value == pytest.approx(0.4999, rel=1e-9)
    assert inside.limit == outside.limit == 0.5
    assert inside.advice == "|lambda_1| = 0.5 against 1/K = 0.5"
    more = put("weak_overlap", pair(0.8))
    assert more.advice == "|lambda_1| = 0.8 against 1/K = 0.5; 1.6 times too much: make common tokens fewer or rarer"
    five = ss.single_common(num_classes=5)
    assert put("weak_overlap", five).limit == 0.2
    spectrum = theory.eigenvalues(theory.overlaps(theory.directions(five.probs)))
    assert put("weak_overlap", five).value == pytest.approx(spectrum[0], rel=1e-9)
    assert put("no_vanishing_overlap", five).value == pytest.approx(-spectrum[-1], rel=1e-9)


def test_no_vanishing_overlap_is_six_over_the_root_of_the_vocabulary() -> None:
    inside, outside = put("no_vanishing_overlap", pair(0.3001, 400)), put("no_vanishing_overlap", pair(0.29, 400))
    assert (inside.met, outside.met) == (True, False)
    assert inside.value == pytest.approx(0.3001, rel=1e-9)
    assert inside.limit == outside.limit == pytest.approx(0.3, rel=1e-12)
    assert inside.advice == "min |lambda_i| = 0.3 against 6/sqrt(M) = 0.3"
    needed = math.ceil((6 / 0.29) ** 2)
    assert outside.advice == f"min |lambda_i| = 0.29 against 6/sqrt(M) = 0.3; it would take M of at least {needed}"
    assert put("no_vanishing_overlap", pair(0.29, needed)).met  # the advice is enough, and no more than that
    assert not put("no_vanishing_overlap", pair(0.29, needed - 1)).met
    assert put("no_vanishing_overlap", pair(0.101)).advice.endswith("it would take M of at least 3,530")
    apart = put("no_vanishing_overlap", pair(0.0))
    assert not apart.met
    assert apart.value == 0
    assert apart.advice.endswith("it would take overlapping classes")


def test_independent_classes_have_a_positive_spectrum() -> None:
    assumption = put("independent_classes", pair(0.75))
    assert assumption.met
    assert (assumption.value, assumption.limit) == (pytest.approx(0.25, rel=1e-9), 0.0)
    assert assumption.advice == "the smallest eigenvalue of F^T F is 0.25"
    twins = ss.SequenceClasses.from_supports(
        tokens=[[0, 1]] * 2, probs=[[0.5, 0.5]] * 2, query=[3, 3], next_token=[4, 5], vocab_size=6
    )
    assert not put("independent_classes", twins).met


@pytest.mark.parametrize(("size", "met"), [(40, True), (39, False)])
def test_a_large_vocabulary_is_ten_times_the_classes_squared(size: int, met: bool) -> None:
    assumption = put("large_vocabulary", pair(0.3, size))
    assert (assumption.value, assumption.limit, assumption.met) == (size, 40, met)
    assert assumption.advice == f"M = {size} against K^2 = 4"


@pytest.mark.parametrize(("size", "met"), [(1000, True), (999, False)])
def test_many_tokens_are_a_thousand(size: int, met: bool) -> None:
    assumption = put("many_tokens", pair(0.3, size))
    assert (assumption.value, assumption.limit, assumption.met, assumption.advice) == (size, 1000, met, f"M = {size}")


def test_the_decoder_s_rate_has_a_range() -> None:
    least = 10 * 1000**-0.99
    for rate, met in ((least * 1.001, True), (least * 0.999, False), (0.999, True), (1.0, False)):
        assumption = put("decoder_rate", pair(0.3), lr_y=rate)
        assert (assumption.value, assumption.limit, assumption.met) == (rate, 1.0, met)
    assert put("decoder_rate", pair(0.3)).advice == "eta_Y = 0.5; the range for M = 1000 is 0.011 to 1"
    assert put("decoder_rate", pair(0.3, 100)).advice.endswith("for M = 100 is 0.1 to 1")


def test_a_fast_decoder_is_ten_times_as_fast() -> None:
    for rate, met in ((0.05, True), (0.0501, False)):
        assumption = put("fast_decoder", pair(0.3), lr_z=rate)
        assert (assumption.value, assumption.limit, assumption.met) == (0.5 / rate, 10, met)
    assumption = put("fast_decoder", pair(0.3), lr_z=0.1)
    assert assumption.advice == (
        "eta_Y/eta_Z = 5, and at least 10 is taken for much larger; what holds to leading order in eta_Z/eta_Y holds "
        "up to a time that grows with the ratio (first_fall)"
    )
    fixed = put("fast_decoder", pair(0.3), lr_z=0.0)
    assert (fixed.value, fixed.met) == (math.inf, True)


@pytest.mark.parametrize(("steps", "met"), [(40, True), (39, False)])
def test_enough_steps_are_ten_times_the_classes_squared(steps: int, met: bool) -> None:
    assumption = put("enough_steps", pair(0.3), steps=steps)
    assert (assumption.value, assumption.limit, assumption.met) == (steps, 40, met)
    assert assumption.advice.startswith(f"{steps} steps against K^2 = 4;")
    assert "enough_steps" not in {assumption.id for assumption in theory.assumptions(pair(0.3), **RATES)}


def test_long_sequences_show_a_typical_token_to_a_tenth() -> None:
    """The median of the probabilities 0.1, 0.2, 0.2, 0.5, 0.5, 0.5 is 0.35: T - 1 >= ln(40)/(2 0.035^2) = 1505.7."""
    classes = ss.SequenceClasses.from_supports(
        tokens=[[0, 1], [0, 2, 6, 7]],
        probs=[[0.5, 0.5], [0.5, 0.2, 0.2, 0.1]],
        query=[3, 3],
        next_token=[4, 5],
        vocab_size=1000,
    )
    for length, met in ((1507, True), (1506, False)):
        assumption = put("long_sequences", classes, seq_len=length)
        assert (assumption.value, assumption.limit, assumption.met) == (length, 1507, met)
        radius = theory.frequency_radius(length, failure=0.05)
        assert radius <= 0.035 if met else radius > 0.035
        assert (
            f"with T = {length} a token's frequency is within 0.035 of its probability (typically 0.35)"
            in assumption.advice
        )
        assert assumption.advice.endswith("within a tenth of it needs T = 1,507")
    forever = put("long_sequences", classes)
    assert (forever.value, forever.limit, forever.met, forever.advice) == (math.inf, math.inf, True, "as assumed")
    for bad in (1, 2.5):
        with pytest.raises(InputError, match=f"seq_len is {bad}: give a whole number from 2"):
            theory.assumptions(classes, **RATES, seq_len=bad)


def test_uniform_classes_have_equal_weights() -> None:
    assumption = put("uniform_classes", pair(0.3, weights=[0.25, 0.75]))
    assert (assumption.value, assumption.limit, assumption.met) == (3.0, 1.0, False)
    assert assumption.advice == "the most frequent class is drawn 3 times as often as the rarest"
    assert put("uniform_classes", pair(0.3)).met
    assert not put("uniform_classes", pair(0.3, weights=[0.5 + 1e-7, 0.5 - 1e-7])).met


def test_plain_sgd_has_no_momentum_and_is_not_adam() -> None:
    plain = put("plain_sgd", pair(0.3))
    assert (plain.value, plain.limit, plain.met, plain.advice) == (0.0, 0.0, True, "as assumed")
    heavy = put("plain_sgd", pair(0.3), momentum=0.9)
    assert (heavy.value, heavy.met) == (0.9, False)
    assert heavy.advice.startswith("sgd with momentum 0.9 is not covered")
    adam = put("plain_sgd", pair(0.3), optimizer="adam")
    assert not adam.met
    assert adam.advice.startswith("adam with momentum 0 is not covered")


def test_a_zero_start_is_zeros() -> None:
    assert put("zero_start", pair(0.3)).met
    assert put("zero_start", pair(0.3)).advice == "as assumed"
    random = put("zero_start", pair(0.3), init="uniform")
    assert not random.met
    assert "a random start gives some tokens a lead" in random.advice


def test_all_of_them_together() -> None:
    good = theory.assumptions(pair(0.3), **RATES, steps=100)
    assert good
    assert good.broken == ()
    assert str(good).count("\n") == len(good.all) - 1
    assert all(line.startswith("met  ") for line in str(good).splitlines())
    bad = theory.assumptions(pair(0.3, 39), **RATES, momentum=0.5)
    assert not bad
    broken = [assumption.id for assumption in bad.broken]
    assert broken == ["no_vanishing_overlap", "large_vocabulary", "many_tokens", "plain_sgd"]
    assert sum(line.startswith("NOT  ") for line in str(bad).splitlines()) == 4
