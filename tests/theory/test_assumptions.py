"""Every assumption just inside and just outside its limit, with the numbers that its advice gives."""

from __future__ import annotations

import math
from typing import Any

import pytest

import scansnap as ss
from scansnap import theory

pytestmark = pytest.mark.rounding

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
SPECTRUM = theory.eigenvalues(theory.overlaps(theory.directions(FIVE.probs)))
LEAST = 10 * 1000**-0.99
NEEDED = math.ceil((6 / 0.29) ** 2)
FLOOR = 6 / math.sqrt(1000)
NEARLY_UNIFORM = pair(0.3, weights=[0.5 + 1e-7, 0.5 - 1e-7])


@pytest.mark.parametrize(
    ("name", "classes", "options", "value", "limit", "met"),
    [
        ("weak_overlap", pair(0.4999), {}, 0.4999, 0.5, True),
        ("weak_overlap", pair(0.5001), {}, 0.5001, 0.5, False),
        ("weak_overlap", FIVE, {}, SPECTRUM[0], 0.2, False),
        ("no_vanishing_overlap", FIVE, {}, -SPECTRUM[-1], FLOOR, True),
        ("no_vanishing_overlap", pair(0.29, NEEDED), {}, 0.29, 6 / math.sqrt(NEEDED), True),  # it is enough
        ("no_vanishing_overlap", pair(0.29, NEEDED - 1), {}, 0.29, 6 / math.sqrt(NEEDED - 1), False),  # just so
        ("no_vanishing_overlap", pair(0.0), {}, 0.0, FLOOR, False),
        ("independent_classes", pair(0.75), {}, 0.25, 0.0, True),
        ("independent_classes", TWINS, {}, 0.0, 0.0, False),
        ("large_vocabulary", pair(0.3, 40), {}, 40, 40, True),
        ("large_vocabulary", pair(0.3, 39), {}, 39, 40, False),
        ("many_tokens", pair(0.3, 1000), {}, 1000, 1000, True),
        ("many_tokens", pair(0.3, 999), {}, 999, 1000, False),
        ("decoder_rate", pair(0.3), {"lr_y": LEAST * 1.001}, LEAST * 1.001, 1.0, True),
        ("decoder_rate", pair(0.3), {"lr_y": LEAST * 0.999}, LEAST * 0.999, 1.0, False),
        ("decoder_rate", pair(0.3), {"lr_y": 0.999}, 0.999, 1.0, True),
        ("decoder_rate", pair(0.3), {"lr_y": 1.0}, 1.0, 1.0, False),
        ("fast_decoder", pair(0.3), {"lr_z": 0.05}, 10, 10, True),
        ("fast_decoder", pair(0.3), {"lr_z": 0.0501}, 0.5 / 0.0501, 10, False),
        ("fast_decoder", pair(0.3), {"lr_z": 0.0}, math.inf, 10, True),
        ("enough_steps", pair(0.3), {"steps": 40}, 40, 40, True),
        ("enough_steps", pair(0.3), {"steps": 39}, 39, 40, False),
        ("long_sequences", MEDIAN, {"seq_len": 1507}, 1507, 1507, True),
        ("long_sequences", MEDIAN, {"seq_len": 1506}, 1506, 1507, False),
        ("long_sequences", MEDIAN, {}, math.inf, math.inf, True),
        ("uniform_classes", pair(0.3), {}, 1.0, 1.0, True),
        ("uniform_classes", NEARLY_UNIFORM, {}, (0.5 + 1e-7) / (0.5 - 1e-7), 1.0, False),
        ("plain_sgd", pair(0.3), {}, 0.0, 0.0, True),
        ("plain_sgd", pair(0.3), {"momentum": 0.9}, 0.9, 0.0, False),
        ("plain_sgd", pair(0.3), {"optimizer": "adam"}, 0.0, 0.0, False),
        ("zero_start", pair(0.3), {}, 0.0, 0.0, True),
        ("zero_start", pair(0.3), {"init": "uniform"}, 0.0, 0.0, False),
    ],
)
def test_limits(
    name: str, classes: ss.SequenceClasses, options: dict[str, Any], value: float, limit: float, met: bool
) -> None:
    """Values from eigenvalues to 1e-9, all others and the limits exactly."""
    assumption = theory.assumptions(classes, **{**RATES, **options})[name]
    assert (assumption.id, assumption.met) == (name, met)
    spectral = name in ("weak_overlap", "no_vanishing_overlap", "independent_classes")
    assert assumption.value == (pytest.approx(value, rel=1e-9, abs=1e-12) if spectral else value)
    assert assumption.limit == (pytest.approx(limit, rel=1e-12) if name == "no_vanishing_overlap" else limit)


@pytest.mark.parametrize(
    ("name", "classes", "options", "advice"),
    [
        ("weak_overlap", pair(0.8), {}, "against 1/K = 0.5; 1.6 times too much"),
        ("no_vanishing_overlap", pair(0.29, 400), {}, f"against 6/sqrt(M) = 0.3; it would take M of at least {NEEDED}"),
        ("no_vanishing_overlap", pair(0.0), {}, "it would take overlapping classes"),
        ("decoder_rate", pair(0.3), {}, "the range for M = 1000 is 0.011 to 1"),
        ("long_sequences", MEDIAN, {"seq_len": 1506}, "within 0.035 of its probability (typically 0.35)"),
        ("uniform_classes", pair(0.3, weights=[0.25, 0.75]), {}, "3 times as often as the rarest"),
        ("plain_sgd", pair(0.3), {"momentum": 0.9}, "sgd with momentum 0.9 is not covered"),
    ],
)
def test_advice_has_its_numbers(name: str, classes: ss.SequenceClasses, options: dict[str, Any], advice: str) -> None:
    assert advice in theory.assumptions(classes, **{**RATES, **options})[name].advice


def test_all_of_them_together() -> None:
    good = theory.assumptions(pair(0.3), **RATES, steps=100)
    assert good
    assert good.broken == ()
    lines = str(good).splitlines()
    assert len(lines) == len(good.all)
    assert all(line.startswith("met  ") for line in lines)
    bad = theory.assumptions(pair(0.3, 39), **RATES, momentum=0.5)
    assert not bad
    broken = [assumption.id for assumption in bad.broken]
    assert broken == ["no_vanishing_overlap", "large_vocabulary", "many_tokens", "plain_sgd"]
    assert sum(line.startswith("NOT  ") for line in str(bad).splitlines()) == 4
    assert "enough_steps" not in {assumption.id for assumption in bad}
