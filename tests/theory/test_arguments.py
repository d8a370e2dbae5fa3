"""What the theory's functions take: each argument at the edge of what is allowed, and just beyond it."""

from __future__ import annotations

import inspect
import math
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from scansnap import theory
from scansnap.runtime.errors import InputError
from scansnap.theory.growth import growth_crossings
from scansnap.validation import checks
from tests.theory.test_defaults import ROWS

TINY = 5e-324
RATES: dict[str, Any] = {"vocab_size": 100, "num_classes": 3, "lr_y": 0.5}
BOUND: dict[str, Any] = {**RATES, "t": 5.0, "lr_z": 0.1, "constant": 2.0}
SYMMETRIC: dict[str, Any] = {
    "times": [1.0],
    "distinct_probs": [0.5],
    "common_probs": [0.5],
    "num_classes": 4,
    "vocab_size": 60,
    "lr_y": 1.0,
    "lr_z": 1.0,
}
FINITE: dict[str, Any] = {"probs": [[0.5, 0.5]], "seq_len": 9}
EARLY: dict[str, Any] = {
    "steps": 3,
    "probs": [[0.5, 0.5]],
    "query": [0],
    "weights": [1.0],
    "vocab_size": 4,
    "lr_y": 0.1,
    "lr_z": 0.1,
}

POSITIVE = TINY, 0.0
NOT_NEGATIVE = 0.0, -TINY
LIMITS: list[tuple[Any, dict[str, Any], dict[str, tuple[float, float]]]] = [
    (
        theory.count_radius,
        {"num_steps": 9, "failure": 0.1},
        {"num_steps": (1, 0), "failure": (np.nextafter(1, 0), 1.0)},
    ),
    (
        theory.growth_deviation,
        {"mean_count": 9.0, "radius": 2.0},
        {"mean_count": (1e-300, 0.0), "radius": NOT_NEGATIVE},
    ),
    (
        theory.residual_deviation,
        {"mean_count": 9.0, "radius": 2.0, "vocab_size": 100, "lr_y": 0.5},
        {"mean_count": POSITIVE, "radius": NOT_NEGATIVE, "vocab_size": (4, 3), "lr_y": POSITIVE},
    ),
    (
        theory.logits_deviation,
        {"num_steps": 9, "num_classes": 3, "failure": 0.1},
        {"num_steps": (1, 0), "num_classes": (1, 0), "failure": (1e-300, 0.0)},
    ),
    (theory.frequency_radius, {"seq_len": 9, "failure": 0.1}, {"seq_len": (2, 1), "failure": (1e-300, 0.0)}),
    (theory.centered_products, {"vocab_size": 9}, {"vocab_size": (2, 1)}),
    (theory.sampling_factors, {"counts": [3.0, 1.0], "vocab_size": 9, "lr_y": 0.5}, {"vocab_size": (2, 1)}),
    (
        theory.shared_overlap_logits,
        {"t": 5.0, "overlap": 0.2, "next_token": [0, 1, 2], **RATES},
        {"t": NOT_NEGATIVE, "num_classes": (1, 0)},
    ),
    (
        theory.residual_norm,
        {"t": 5.0, **RATES},
        {"t": NOT_NEGATIVE, "vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": NOT_NEGATIVE},
    ),
    (
        theory.steps_to_reach,
        {"residual": 0.1, **RATES},
        {"residual": (1e-300, 0.0), "vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": (1e-300, 0.0)},
    ),
    (theory.relative_gain, {"prob": 0.4, "other_prob": 0.2}, {"prob": (1e-300, 0.0), "other_prob": (1e-100, 0.0)}),
    (
        theory.relative_gain_after,
        {"initial_gain": 0.4, "growth": 1.2},
        {"initial_gain": (np.nextafter(-1, 0), -1.0), "growth": POSITIVE},
    ),
    (
        theory.companion_growth,
        {"initial_gain": 0.4, "growth": 1.2},
        {"initial_gain": (np.nextafter(-1, 0), -1.0), "growth": (1e-300, 0.0)},
    ),
    (theory.dominant, {"probs": [0.4]}, {"probs": ([1e-300], [0.0])}),
    (
        theory.growth_factor_bounds,
        {"bound": 0.4, "initial_direction": 0.2},
        {"initial_direction": POSITIVE, "weight": POSITIVE},
    ),
    (theory.direction_variance, FINITE, {"seq_len": (2, 1)}),
    (theory.finite_length_drive, FINITE, {"seq_len": (2, 1)}),
    (theory.early_logits, EARLY, {"steps": (0, -1), "weights": ([TINY], [0.0]), "seq_len": (2, 1)}),
    (
        theory.decoder_growth,
        {"t": 3.0, "vocab_size": 9, "lr_y": 0.5},
        {"t": NOT_NEGATIVE, "vocab_size": (2, 1), "lr_y": NOT_NEGATIVE},
    ),
    (
        theory.growth_time,
        {"growth": 3.0, "vocab_size": 9, "lr_y": 0.5},
        {"growth": NOT_NEGATIVE, "vocab_size": (2, 1), "lr_y": (1e-300, 0.0)},
    ),
    (
        theory.decoder_growth_steps,
        {"steps": 3, "vocab_size": 9, "lr_y": 0.5},
        {"steps": (0, -1), "vocab_size": (2, 1), "lr_y": NOT_NEGATIVE},
    ),
    (theory.residual_size, {"growth": 3.0, "vocab_size": 9}, {"growth": NOT_NEGATIVE, "vocab_size": (2, 1)}),
    (theory.shift_start, {"vocab_size": 9, "lr_y": 0.5}, {"vocab_size": (4, 3), "lr_y": (1e-300, 0.0)}),
    (
        theory.shift_bounds,
        {"growth": 0.1, "vocab_size": 9, "lr_y": 0.5},
        {"growth": NOT_NEGATIVE, "vocab_size": (2, 1), "lr_y": (1e-3, 0.0)},
    ),
    (theory.rate_order_time, RATES, {"vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": (1e-300, 0.0)}),
    (theory.layer_overlaps, {"attention": [[1.0, 0.0]], "vocab_size": 9}, {"vocab_size": (2, 1)}),
    (
        theory.shared_overlap_rate,
        {"overlap": 0.2, "vocab_size": 9, "num_classes": 3},
        {"overlap": NOT_NEGATIVE, "vocab_size": (2, 1), "num_classes": (1, 0)},
    ),
    (growth_crossings, {"vocab_size": 9}, {"vocab_size": (4, 3)}),
    (
        theory.energy_velocity,
        {
            "direction": [[1.0]],
            "measured": theory.measured_gradient([[1.0]], [[0.0, 1.0]], next_token=[0]),
            "query": [0],
            "weights": [1.0],
            "lr_z": 1.0,
        },
        {"weights": ([TINY], [0.0])},
    ),
    (theory.distinct_velocity, {"direction": [[1.0]], "drive": 1.0, "lr_z": 1.0}, {"weights": ([TINY], [0.0])}),
    (
        theory.speed,
        {"t": 5.0, **RATES},
        {"t": NOT_NEGATIVE, "vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": NOT_NEGATIVE},
    ),
    (
        theory.speed_scanning,
        {"t": 5.0, **RATES},
        {"t": NOT_NEGATIVE, "vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": NOT_NEGATIVE},
    ),
    (
        theory.speed_snapping,
        {"t": 5.0, **RATES},
        {"t": NOT_NEGATIVE, "vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": POSITIVE},
    ),
    (theory.scan_end, RATES, {"vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": (1e-300, 0.0)}),
    (theory.snap_start, RATES, {"vocab_size": (4, 3), "num_classes": (1, 0), "lr_y": (1e-300, 0.0)}),
    (
        theory.accumulated_speed,
        {"t": 5.0, "lr_z": 0.1, **RATES},
        {"t": NOT_NEGATIVE, "vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": (1e-300, 0.0), "lr_z": NOT_NEGATIVE},
    ),
    (theory.growth_bound, BOUND, {"constant": (1e-300, 0.0), "lr_z": NOT_NEGATIVE}),
    (
        theory.growth_bound_phases,
        BOUND,
        {
            "t": NOT_NEGATIVE,
            "vocab_size": (4, 3),
            "num_classes": (1, 0),
            "lr_y": (1e-300, 0.0),
            "lr_z": NOT_NEGATIVE,
            "constant": (1e-300, 0.0),
        },
    ),
    (
        theory.growth_bound_late,
        BOUND,
        {
            "t": NOT_NEGATIVE,
            "vocab_size": (2, 1),
            "num_classes": (1, 0),
            "lr_y": (1e-300, 0.0),
            "lr_z": (1e-300, 0.0),
            "constant": POSITIVE,
        },
    ),
    (
        theory.late_time,
        {name: value for name, value in BOUND.items() if name != "t"},
        {"vocab_size": (2, 1), "num_classes": (1, 0), "lr_y": (1e-300, 0.0), "lr_z": (1e-3, 0.0), "constant": POSITIVE},
    ),
    (theory.phase_constant, {"overlap": 0.3, "num_classes": 3}, {"overlap": (1e-100, 0.0), "num_classes": (2, 1)}),
    (theory.position_prior, {"part_probs": [0.3], "sizes": [2.0], "bias": [0.1]}, {"sizes": ([1e-300], [0.0])}),
    (
        theory.spurious_share,
        {"probs": [[1.0]], "weights": [1.0], "seq_len": 3, "num_sequences": 2},
        {"weights": ([TINY], [0.0])},
    ),
    (
        theory.symmetric_flow,
        SYMMETRIC,
        {
            "times": ([0.0], [-TINY]),
            "distinct_probs": ([1e-100], [0.0]),
            "common_probs": ([1e-100], [0.0]),
            "num_classes": (2, 1),
            "lr_y": (1e-100, 0.0),
            "lr_z": NOT_NEGATIVE,
            "classes_per_query": (1, 0),
        },
    ),
    (theory.symmetric_flow, {**SYMMETRIC, "num_classes": 2}, {"vocab_size": (3, 2)}),
]
CASES = [
    pytest.param(function, needed, name, *edge, id=f"{function.__name__}-{name}")
    for function, needed, limits in LIMITS
    for name, edge in limits.items()
]


@pytest.mark.parametrize(("function", "needed", "name", "allowed", "refused"), CASES)
def test_the_least_that_is_allowed_is_taken_and_no_less(
    function: Any, needed: dict[str, Any], name: str, allowed: Any, refused: Any
) -> None:
    function(**{**needed, name: allowed})
    with pytest.raises(InputError, match=rf"^{name} (holds|is) {np.ravel(refused)[0]:g}: give "):
        function(**{**needed, name: refused})


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


@pytest.mark.parametrize(
    "function",
    [f for f in vars(theory).values() if inspect.isfunction(f) and "form" in inspect.signature(f).parameters],
    ids=lambda function: function.__name__,
)
def test_a_form_that_does_not_exist_is_refused(function: Any) -> None:
    """Before anything else is looked at, or at the latest when the formula is chosen."""
    needed = next(needed for listed, needed, defaults in ROWS if listed is function and "form" in defaults)
    with pytest.raises(InputError, match="unknown form 'exakt'"):
        function(**needed, form="exakt")


def test_what_the_theory_returns_cannot_be_changed() -> None:
    measured = theory.measured_gradient([[1.0]], [[0.0, 1.0]], next_token=[0])
    assumed = theory.symmetry([[1.0]], query=[0])
    bounds = theory.overlap_bounds([[0.0, 0.1], [0.1, 0.0]])
    trajectory = theory.symmetric_flow(**SYMMETRIC)
    for value in (measured, assumed, bounds, trajectory):
        assert is_dataclass(value)
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, None)


def test_the_reduction_refuses_what_it_cannot_integrate() -> None:
    with pytest.raises(InputError, match="times must be increasing numbers of steps"):
        theory.symmetric_flow(**{**SYMMETRIC, "times": [1.0, 1.0]})
    with pytest.raises(InputError, match=r"times has shape \(1, 2\): give numbers in a row"):
        theory.symmetric_flow(**{**SYMMETRIC, "times": [[1.0, 2.0]]})
    with pytest.raises(InputError, match="vocab_size is 4: give more tokens than the 4 next tokens"):
        theory.symmetric_flow(**{**SYMMETRIC, "vocab_size": 4})
    theory.symmetric_flow(**{**SYMMETRIC, "vocab_size": 5})
    with pytest.raises(InputError, match="unknown decoder_gradient 'tru': did you mean 'true'"):
        theory.symmetric_flow(**SYMMETRIC, decoder_gradient="tru")


def test_a_prior_needs_one_size_and_one_bias_for_each_bucket() -> None:
    good: dict[str, Any] = {"part_probs": [[0.2, 0.4]], "sizes": [1, 2], "bias": [0.1, 0.2]}
    theory.position_prior(**good)
    for wrong in ({"part_probs": [[0.2, 0.4, 0.1]]}, {"sizes": [1, 2, 3]}, {"bias": [0.1, 0.2, 0.3]}, {"bias": 0.1}):
        with pytest.raises(InputError, match=r"^part_probs ends in .*: give one per bucket\.$"):
            theory.position_prior(**{**good, **wrong})


def test_a_query_is_the_index_of_one_of_the_tokens() -> None:
    f = theory.directions([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    theory.residual_directions(f, [0, 2])
    for query in ([0, 3], [0], [0, 1, 2], [[0], [1]]):
        with pytest.raises(InputError, match=r"give each of 2 classes an index below 3\.$"):
            theory.residual_directions(f, query)
    with pytest.raises(InputError, match=r"^query is \[-1, 2\]: give ids of tokens, whole numbers from 0 on\.$"):
        theory.residual_directions(f, [-1, 2])
