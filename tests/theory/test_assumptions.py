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
SPECTRUM = theory.eigenvalues(theory.overlaps(theory.directions(FIVE.probs)))
LEAST = 10 * 1000**-0.99
NEEDED = math.ceil((6 / 0.29) ** 2)
FLOOR = 6 / math.sqrt(1000)
STRONG = "; 1.6 times too much: make common tokens fewer or rarer"
VANISHING = "min |lambda_i| = {} against 6/sqrt(M) = {}"
LENGTH = (
    "with T = {} a token's frequency is within 0.035 of its probability (typically 0.35) in 95% of sequences; "
    "within a tenth of it needs T = 1,507"
)
RANGE = "eta_Y = {}; the range for M = {} is {} to 1"
RATIO = (
    "eta_Y/eta_Z = {}, and at least 10 is taken for much larger; what holds to leading order in eta_Z/eta_Y holds "
    "up to a time that grows with the ratio (first_fall)"
)
STEPS = "{} steps against K^2 = 4; early draws of classes are uneven"
MOMENTUM = "{} is not covered; momentum μ acts like rates larger by 1/(1 - μ) once it has built up"
TAKES, MORE = "it would take overlapping classes", f"it would take M of at least {NEEDED}"
RANDOM = "a random start gives some tokens a lead (Theorem 3: r(0))"
NEARLY_UNIFORM = pair(0.3, weights=[0.5 + 1e-7, 0.5 - 1e-7])
OFTEN = "the most frequent class is drawn {} times as often as the rarest"


@pytest.mark.parametrize(
    ("name", "classes", "options", "value", "limit", "met", "advice"),
    [
        ("weak_overlap", pair(0.4999), {}, 0.4999, 0.5, True, "|lambda_1| = 0.5 against 1/K = 0.5"),
        ("weak_overlap", pair(0.5001), {}, 0.5001, 0.5, False, None),
        ("weak_overlap", pair(0.8), {}, 0.8, 0.5, False, f"|lambda_1| = 0.8 against 1/K = 0.5{STRONG}"),
        ("weak_overlap", FIVE, {}, SPECTRUM[0], 0.2, False, None),
        ("no_vanishing_overlap", FIVE, {}, -SPECTRUM[-1], FLOOR, True, None),
        ("no_vanishing_overlap", pair(0.3001, 400), {}, 0.3001, 0.3, True, VANISHING.format(0.3, 0.3)),
        ("no_vanishing_overlap", pair(0.29, 400), {}, 0.29, 0.3, False, f"{VANISHING.format(0.29, 0.3)}; {MORE}"),
        ("no_vanishing_overlap", pair(0.29, NEEDED), {}, 0.29, 6 / math.sqrt(NEEDED), True, None),  # it is enough
        ("no_vanishing_overlap", pair(0.29, NEEDED - 1), {}, 0.29, 6 / math.sqrt(NEEDED - 1), False, None),  # just so
        ("no_vanishing_overlap", pair(0.0), {}, 0.0, FLOOR, False, f"{VANISHING.format(0, 0.19)}; {TAKES}"),
        ("independent_classes", pair(0.75), {}, 0.25, 0.0, True, "the smallest eigenvalue of F^T F is 0.25"),
        ("independent_classes", TWINS, {}, 0.0, 0.0, False, None),
        ("large_vocabulary", pair(0.3, 40), {}, 40, 40, True, "M = 40 against K^2 = 4"),
        ("large_vocabulary", pair(0.3, 39), {}, 39, 40, False, "M = 39 against K^2 = 4"),
        ("many_tokens", pair(0.3, 1000), {}, 1000, 1000, True, "M = 1000"),
        ("many_tokens", pair(0.3, 999), {}, 999, 1000, False, "M = 999"),
        ("decoder_rate", pair(0.3), {"lr_y": LEAST * 1.001}, LEAST * 1.001, 1.0, True, None),
        ("decoder_rate", pair(0.3), {"lr_y": LEAST * 0.999}, LEAST * 0.999, 1.0, False, None),
        ("decoder_rate", pair(0.3), {"lr_y": 0.999}, 0.999, 1.0, True, RANGE.format(0.999, 1000, 0.011)),
        ("decoder_rate", pair(0.3), {"lr_y": 1.0}, 1.0, 1.0, False, RANGE.format(1, 1000, 0.011)),
        ("decoder_rate", pair(0.3, 100), {}, 0.5, 1.0, True, RANGE.format(0.5, 100, 0.1)),
        ("fast_decoder", pair(0.3), {"lr_z": 0.05}, 10, 10, True, RATIO.format(10)),
        ("fast_decoder", pair(0.3), {"lr_z": 0.0501}, 0.5 / 0.0501, 10, False, RATIO.format(9.98004)),
        ("fast_decoder", pair(0.3), {"lr_z": 0.0}, math.inf, 10, True, RATIO.format("inf")),
        ("enough_steps", pair(0.3), {"steps": 40}, 40, 40, True, STEPS.format(40)),
        ("enough_steps", pair(0.3), {"steps": 39}, 39, 40, False, STEPS.format(39)),
        ("long_sequences", MEDIAN, {"seq_len": 1507}, 1507, 1507, True, LENGTH.format(1507)),
        ("long_sequences", MEDIAN, {"seq_len": 1506}, 1506, 1507, False, LENGTH.format(1506)),
        ("long_sequences", MEDIAN, {}, math.inf, math.inf, True, "as assumed"),
        ("uniform_classes", pair(0.3), {}, 1.0, 1.0, True, OFTEN.format(1)),
        ("uniform_classes", pair(0.3, weights=[0.25, 0.75]), {}, 3.0, 1.0, False, OFTEN.format(3)),
        ("uniform_classes", NEARLY_UNIFORM, {}, (0.5 + 1e-7) / (0.5 - 1e-7), 1.0, False, OFTEN.format(1)),
        ("plain_sgd", pair(0.3), {}, 0.0, 0.0, True, "as assumed"),
        ("plain_sgd", pair(0.3), {"momentum": 0.9}, 0.9, 0.0, False, MOMENTUM.format("sgd with momentum 0.9")),
        ("plain_sgd", pair(0.3), {"optimizer": "adam"}, 0.0, 0.0, False, MOMENTUM.format("adam with momentum 0")),
        ("zero_start", pair(0.3), {}, 0.0, 0.0, True, "as assumed"),
        ("zero_start", pair(0.3), {"init": "uniform"}, 0.0, 0.0, False, RANDOM),
    ],
)
def test_limits(
    name: str,
    classes: ss.SequenceClasses,
    options: dict[str, Any],
    value: float,
    limit: float,
    met: bool,
    advice: str | None,
) -> None:
    """Values from eigenvalues to 1e-9, all others and the limits exactly; None where the advice says nothing new."""
    assumption = theory.assumptions(classes, **{**RATES, **options})[name]
    assert (assumption.id, assumption.met) == (name, met)
    spectral = name in ("weak_overlap", "no_vanishing_overlap", "independent_classes")
    assert assumption.value == (pytest.approx(value, rel=1e-9, abs=1e-12) if spectral else value)
    assert assumption.limit == (pytest.approx(limit, rel=1e-12) if name == "no_vanishing_overlap" else limit)
    assert advice in (None, assumption.advice)


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
    small = theory.assumptions(ss.syn_small(), lr_y=1.0, lr_z=1.0, seq_len=128, momentum=0.9)
    broken = {assumption.id for assumption in small.broken}
    assert broken >= {"long_sequences", "fast_decoder", "weak_overlap", "many_tokens", "decoder_rate", "plain_sgd"}
    f = theory.directions(ss.syn_small().probs)
    assert small["weak_overlap"].value == pytest.approx(f[0] @ f[1])
