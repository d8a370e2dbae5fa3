"""Every default of the theory's functions, by what it does."""

from __future__ import annotations

import math
from typing import Any

import pytest

import scansnap as ss
from scansnap import theory
from tests.data.test_defaults import Row, check_defaults, unlisted

PROBS = [[0.5, 0.3, 0.2, 0.0], [0.4, 0.0, 0.2, 0.4], [0.1, 0.9, 0.0, 0.0]]
LOGITS = [0.3, -0.2, 0.1, 0.5]
F = theory.directions(PROBS)
E = theory.overlaps(F)
BETA = theory.backpropagated_gradient(E, vocab_size=20).beta
UNIFORM, UNEVEN = [1 / 3] * 3, [0.5, 0.3, 0.2]
FORM = ("exact", "published")
RATES = {"vocab_size": 1000, "num_classes": 10, "lr_y": 0.5, "lr_z": 0.05}


def skewed(by: float) -> dict[str, Any]:
    """Two classes with two common tokens, symmetric but for a difference between the probabilities of one."""
    return {"probs": [[0.3, 0.3, 0.4, 0.0], [0.3, 0.3 + by, 0.0, 0.4]], "query": [7, 7]}


ROWS: list[Row] = [
    (
        theory.assumptions,
        {"classes": ss.syn_small(), "lr_y": 0.5, "lr_z": 0.05},
        {
            "seq_len": (math.inf, 128),
            "steps": (None, 100),
            "momentum": (0.0, 0.9),
            "optimizer": ("sgd", "adam"),
            "init": ("zeros", "uniform"),
        },
    ),
    (
        theory.logits_velocity,
        {"direction": F, "beta": BETA, "query": [7, 8, 7], "speed": 2.0, "lr_z": 0.3},
        {"weights": (UNIFORM, UNEVEN), "form": FORM},
    ),
    (
        theory.distinct_velocity,
        {"direction": F, "drive": 0.7, "lr_z": 0.3},
        {"weights": (UNIFORM, UNEVEN), "form": FORM},
    ),
    (
        theory.single_common_velocity,
        {"direction": F, "drive": 0.7, "token": 0, "query": [7, 8, 7], "lr_z": 0.3},
        {"weights": (UNIFORM, UNEVEN), "form": FORM},
    ),
    (theory.fates, skewed(0.7e-9), {"tolerance": (1e-9, 0.5e-9)}),
    (theory.fates, skewed(1.5e-9), {"tolerance": (1e-9, 2e-9)}),
    (theory.symmetry, skewed(0.7e-9), {"tolerance": (1e-9, 0.5e-9)}),
    (theory.symmetry, skewed(1.5e-9), {"tolerance": (1e-9, 2e-9)}),
    (theory.count_radius, {"num_steps": 30, "failure": 0.1}, {"form": ("exact", "loose")}),
    (theory.residual_deviation, {"mean_count": 30, "radius": 5, "vocab_size": 100, "lr_y": 0.5}, {"form": FORM}),
    (
        theory.backpropagated_gradient,
        {"overlap": E, "vocab_size": 20},
        {"theta": (0.0, 0.1), "sigma": (0.0, 0.1), "form": FORM},
    ),
    (theory.steps_to_reach, {"residual": 0.1, "vocab_size": 100, "num_classes": 3, "lr_y": 0.5}, {"form": FORM}),
    (theory.relative_gain, {"prob": 0.4, "other_prob": 0.1}, {"logit": (0.0, 0.1), "other_logit": (0.0, 0.1)}),
    (theory.growth_factor, {"logit": 0.3}, {"initial_logit": (0.0, 0.1)}),
    (theory.dominant, {"probs": [0.4, 0.3]}, {"logits": (0.0, [0.0, 1.0])}),
    (theory.growth_factor_bounds, {"bound": 0.4, "initial_direction": 0.3}, {"weight": (1.0, 0.5)}),
    (theory.direction_variance, {"probs": PROBS, "seq_len": 9}, {"logits": (0.0, LOGITS)}),
    (theory.finite_length_drive, {"probs": PROBS, "seq_len": 9}, {"logits": (0.0, LOGITS)}),
    (
        theory.early_logits,
        {"steps": 5, "probs": PROBS, "query": [7, 8, 7], "weights": UNEVEN, "vocab_size": 20, "lr_y": 0.5, "lr_z": 0.3},
        {"seq_len": (math.inf, 100)},
    ),
    (theory.distinctness, {"probs": PROBS}, {"weights": (UNIFORM, UNEVEN), "next_token": ([0, 1, 2], [0, 1, 0])}),
    (
        theory.early_drive,
        {"probs": PROBS, "vocab_size": 20},
        {"weights": (UNIFORM, UNEVEN), "next_token": ([0, 1, 2], [0, 1, 0])},
    ),
    (theory.early_drive, {"probs": PROBS, "next_token": [0, 1, 0]}, {"vocab_size": (len(PROBS[0]), 20)}),
    (theory.favored, {"probs": PROBS, "vocab_size": 20}, {"next_token": ([0, 1, 2], [0, 1, 0])}),
    (theory.favored, {"probs": [[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.2, 0.3, 0.5]]}, {"weights": (UNIFORM, UNEVEN)}),
    (
        theory.favored,
        {"probs": [[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.2, 0.3, 0.5]], "next_token": [0, 1, 0]},
        {"vocab_size": (3, 1)},
    ),
    (theory.shift_start, {"vocab_size": 1000, "lr_y": 0.5}, {"form": FORM}),
    (theory.directions, {"probs": PROBS}, {"logits": (0.0, LOGITS)}),
    (theory.inverse_overlaps, {"overlap": E}, {"form": FORM}),
    (theory.diagonal_bound, {"overlap": E / 2}, {"form": FORM}),
    (theory.growth_bound, {"t": 50.0, "constant": 3.0, **RATES}, {"form": FORM}),
    (theory.growth_bound_phases, {"t": 50.0, "constant": 3.0, **RATES}, {"form": FORM}),
    (theory.growth_bound_late, {"t": 1e20, **RATES}, {"constant": (1.0, 2.0)}),
    (theory.growth_bound_late, {"t": 1e20, "constant": 3.0, **RATES}, {"form": FORM}),
    (theory.late_time, RATES, {"constant": (1.0, 2.0), "form": FORM}),
    (theory.phase_constant, {"overlap": 0.3, "num_classes": 4}, {"form": ("leading", "initial")}),
    (theory.residual_beta, {"direction": F, "query": [1, 3, 1]}, {"form": FORM}),
    (
        theory.residual_velocity,
        {"direction": F, "query": [1, 3, 1], "vocab_size": 20},
        {"speed": (1.0, 2.0), "lr_z": (1.0, 2.0), "weights": (UNIFORM, UNEVEN)},
    ),
    (
        theory.symmetric_flow,
        {
            "times": [3.0, 300.0],
            "distinct_probs": [0.1, 0.3],
            "common_probs": [0.6],
            "num_classes": 4,
            "vocab_size": 20,
            "lr_y": 0.5,
            "lr_z": 0.3,
        },
        {
            "classes_per_query": (4, 2),
            "decoder_gradient": ("true", "modified"),
            "rtol": (1e-10, 3e-10),
            "atol": (1e-12, 3e-12),
        },
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].__name__}-{'-'.join(row[2])}")
def test_defaults_are_those_written_out(row: Row) -> None:
    check_defaults(row)


def test_every_default_is_listed() -> None:
    assert unlisted(theory, ROWS) == set()
