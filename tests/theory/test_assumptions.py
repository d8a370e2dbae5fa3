"""Every assumption just inside and just outside its limit, with the numbers that its advice gives."""

from __future__ import annotations

import math
from typing import Any

import pytest

import scansnap as ss
from scansnap import theory

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


MEDIAN = ss.SequenceClasses.from_supports(
    tokens=[[0, 1], [0, 2, 6, 7]],
    probs=[[0.5, 0.5], [0.5, 0.2, 0.2, 0.1]],
    query=[3, 3],
    next_token=[4, 5],
    vocab_size=1000,
)
"""The median of its probabilities is 0.35: a tenth of it needs T - 1 >= ln(40)/(2 0.035^2) = 1505.7."""
TWINS = ss.SequenceClasses.from_supports(
    tokens=[[0, 1]] * 2, probs=[[0.5, 0.5]] * 2, query=[3, 3], next_token=[4, 5], vocab_size=6
)
FIVE = ss.single_common(num_classes=5)
LEAST = 10 * 1000**-0.99
NEEDED = math.ceil((6 / 0.29) ** 2)
LENGTH = "with T = {} a token's frequency is within 0.035 of its probability (typically 0.35)"


@pytest.mark.parametrize(
    ("name", "classes", "options", "value", "limit", "met", "advice"),
    [
        ("weak_overlap", pair(0.4999), {}, 0.4999, 0.5, True, "|lambda_1| = 0.5 against 1/K = 0.5"),
        ("weak_overlap", pair(0.5001), {}, 0.5001, 0.5, False, "; 1.0 times too much"),
        ("weak_overlap", pair(0.8), {}, 0.8, 0.5, False, "; 1.6 times too much: make common tokens fewer or rarer"),
        ("weak_overlap", FIVE, {}, 4 * 0.33126, 0.2, False, "against 1/K = 0.2"),
        ("no_vanishing_overlap", FIVE, {}, 0.33126, 6 / math.sqrt(1000), True, ""),
        (
            "no_vanishing_overlap",
            pair(0.3001, 400),
            {},
            0.3001,
            0.3,
            True,
            "min |lambda_i| = 0.3 against 6/sqrt(M) = 0.3",
        ),
        ("no_vanishing_overlap", pair(0.29, 400), {}, 0.29, 0.3, False, f"it would take M of at least {NEEDED}"),
        ("no_vanishing_overlap", pair(0.29, NEEDED), {}, 0.29, 0.29, True, ""),  # the advice is enough
        ("no_vanishing_overlap", pair(0.29, NEEDED - 1), {}, 0.29, 0.29, False, ""),  # and no more than that
        ("no_vanishing_overlap", pair(0.101), {}, 0.101, 0.19, False, "it would take M of at least 3,530"),
        ("no_vanishing_overlap", pair(0.0), {}, 0.0, 0.19, False, "it would take overlapping classes"),
        ("independent_classes", pair(0.75), {}, 0.25, 0.0, True, "the smallest eigenvalue of F^T F is 0.25"),
        ("independent_classes", TWINS, {}, 0.0, 0.0, False, ""),
        ("large_vocabulary", pair(0.3, 40), {}, 40, 40, True, "M = 40 against K^2 = 4"),
        ("large_vocabulary", pair(0.3, 39), {}, 39, 40, False, "M = 39 against K^2 = 4"),
        ("many_tokens", pair(0.3, 1000), {}, 1000, 1000, True, "M = 1000"),
        ("many_tokens", pair(0.3, 999), {}, 999, 1000, False, "M = 999"),
        ("decoder_rate", pair(0.3), {"lr_y": LEAST * 1.001}, LEAST, 1.0, True, "the range for M = 1000 is 0.011 to 1"),
        ("decoder_rate", pair(0.3), {"lr_y": LEAST * 0.999}, LEAST, 1.0, False, ""),
        ("decoder_rate", pair(0.3), {"lr_y": 0.999}, 0.999, 1.0, True, "eta_Y = 0.999; "),
        ("decoder_rate", pair(0.3), {"lr_y": 1.0}, 1.0, 1.0, False, ""),
        (
            "fast_decoder",
            pair(0.3),
            {"lr_z": 0.05},
            10,
            10,
            True,
            "eta_Y/eta_Z = 10, and at least 10 is taken for much",
        ),
        ("fast_decoder", pair(0.3), {"lr_z": 0.0501}, 9.98, 10, False, "up to a time that grows with the ratio"),
        ("fast_decoder", pair(0.3), {"lr_z": 0.0}, math.inf, 10, True, ""),
        ("enough_steps", pair(0.3), {"steps": 40}, 40, 40, True, "40 steps against K^2 = 4;"),
        ("enough_steps", pair(0.3), {"steps": 39}, 39, 40, False, "39 steps against K^2 = 4;"),
        ("long_sequences", MEDIAN, {"seq_len": 1507}, 1507, 1507, True, LENGTH.format(1507)),
        ("long_sequences", MEDIAN, {"seq_len": 1506}, 1506, 1507, False, "within a tenth of it needs T = 1,507"),
        ("long_sequences", MEDIAN, {}, math.inf, math.inf, True, "as assumed"),
        ("uniform_classes", pair(0.3), {}, 1.0, 1.0, True, ""),
        ("uniform_classes", pair(0.3, weights=[0.25, 0.75]), {}, 3.0, 1.0, False, "3 times as often as the rarest"),
        ("uniform_classes", pair(0.3, weights=[0.5 + 1e-7, 0.5 - 1e-7]), {}, 1.0, 1.0, False, ""),
        ("plain_sgd", pair(0.3), {}, 0.0, 0.0, True, "as assumed"),
        ("plain_sgd", pair(0.3), {"momentum": 0.9}, 0.9, 0.0, False, "sgd with momentum 0.9 is not covered"),
        ("plain_sgd", pair(0.3), {"optimizer": "adam"}, 0.0, 0.0, False, "adam with momentum 0 is not covered"),
        ("zero_start", pair(0.3), {}, 0.0, 0.0, True, "as assumed"),
        ("zero_start", pair(0.3), {"init": "uniform"}, 0.0, 0.0, False, "a random start gives some tokens a lead"),
    ],
)
def test_limits(
    name: str, classes: ss.SequenceClasses, options: dict[str, Any], value: float, limit: float, met: bool, advice: str
) -> None:
    assumption = theory.assumptions(classes, **{**RATES, **options})[name]
    assert (assumption.id, assumption.met) == (name, met)
    assert assumption.value == pytest.approx(value, rel=2e-3, abs=1e-9)
    assert assumption.limit == pytest.approx(limit, rel=2e-3)
    assert advice in assumption.advice


def test_all_of_them_together() -> None:
    good = theory.assumptions(pair(0.3), **RATES, steps=100)
    assert good
    assert good.broken == ()
    assert all(line.startswith("met  ") for line in str(good).splitlines())
    bad = theory.assumptions(pair(0.3, 39), **RATES, momentum=0.5)
    assert not bad
    broken = [assumption.id for assumption in bad.broken]
    assert broken == ["no_vanishing_overlap", "large_vocabulary", "many_tokens", "plain_sgd"]
    assert sum(line.startswith("NOT  ") for line in str(bad).splitlines()) == 4
    assert "enough_steps" not in {assumption.id for assumption in bad}
