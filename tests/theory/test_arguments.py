"""What the theory's functions take: the edge of what each argument allows, every form, and every default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scansnap.runtime.errors import InputError
from tests.faults.calls import Call, good_calls

CALLS = {name.removeprefix("theory."): call for name, call in good_calls("theory", Path()).items()}
TINY = 5e-324
LIMITS: dict[str, tuple[Any, Any]] = {
    "constant": (1e-300, 0.0),
    "failure": (np.nextafter(1, 0), 1.0),
    "growth": (1e-300, -TINY),
    "initial_direction": (TINY, 0.0),
    "initial_gain": (np.nextafter(-1, 0), -1.0),
    "lr_y": (1e-300, 0.0),
    "lr_z": (0.0, -TINY),
    "mean_count": (1e-300, 0.0),
    "num_classes": (1, 0),
    "num_steps": (1, 0),
    "other_prob": (1e-100, 0.0),
    "prob": (1e-300, 0.0),
    "radius": (0.0, -TINY),
    "residual": (1e-300, 0.0),
    "seq_len": (2, 1),
    "sizes": ([1e-300, 1.0], [0.0, 1.0]),
    "steps": (0, -1),
    "t": (0.0, -TINY),
    "vocab_size": (2, 1),
    "weight": (TINY, 0.0),
    "weights": ([TINY, 0.5, 0.5], [0.0, 0.5, 0.5]),
}
"""What is just allowed and what is just refused, almost everywhere."""
OTHER_LIMITS: dict[str, dict[str, tuple[Any, Any] | None]] = {
    "assumptions": dict.fromkeys(("lr_z", "seq_len", "steps")),
    "centered_one_hot": {"vocab_size": None},
    "companion_growth": {"growth": (1e-300, 0.0)},
    "decoder_logits": {"vocab_size": None, "lr_y": (0.0, -TINY)},
    "dominant": {"probs": ([1e-300], [0.0])},
    "early_drive": {"vocab_size": None},
    "early_logits": dict.fromkeys(("vocab_size", "lr_y", "lr_z")),
    "favored": {"vocab_size": None},
    "first_fall": {"lr_z": (1e-3, 0.0)},
    "layer_overlaps": {"vocab_size": (4, 1)},
    "phase_constant": {"overlap": (1e-100, 0.0), "num_classes": (2, 1)},
    "relative_gain_after": {"growth": (TINY, 0.0)},
    "sampling_factors": {"lr_y": None},
    "shared_overlap_logits": {"vocab_size": (3, 1), "lr_y": (0.0, -TINY)},
    "shared_overlap_rate": {"overlap": (0.0, -TINY)},
    "spurious_share": {"seq_len": None},
    "symmetric_flow": {
        "times": ([0.0], [-TINY]),
        "distinct_probs": ([1e-100], [0.0]),
        "common_probs": ([1e-100], [0.0]),
        "num_classes": (2, 1),
        "vocab_size": (4, 2),
        "lr_y": (1e-100, 0.0),
        "classes_per_query": (1, 0),
    },
    **{name: {"lr_z": (1e-300, 0.0)} for name in ("growth_bound_late", "late_time")},
    **{name: {"lr_y": (0.0, -TINY)} for name in ("decoder_growth", "decoder_growth_steps", "residual_norm", "speed")},
    "speed_scanning": {"lr_y": (0.0, -TINY)},
    "shift_bounds": {"lr_y": (1e-3, 0.0)},
    **{name: {"vocab_size": (4, 3)} for name in ("growth_bound_phases", "growth_crossings", "residual_deviation")},
    **{name: {"vocab_size": (4, 3)} for name in ("shift_start", "snap_start")},
    **{name: {"lr_z": None} for name in ("distinct_velocity", "energy_velocity", "logits_velocity")},
    **{name: {"lr_z": None} for name in ("residual_velocity", "single_common_velocity")},
}
"""Elsewhere; None where the argument is checked otherwise, or not at all."""
CASES = [
    pytest.param(call, parameter, *edge, id=f"{name}-{parameter}")
    for name, call in CALLS.items()
    for parameter in call.arguments
    if (edge := OTHER_LIMITS.get(name, {}).get(parameter, LIMITS.get(parameter)))
    and parameter not in {p for p, e in OTHER_LIMITS.get(name, {}).items() if e is None}
]


@pytest.mark.parametrize(("call", "parameter", "allowed", "refused"), CASES)
def test_the_least_that_is_allowed_is_taken_and_no_less(call: Call, parameter: str, allowed: Any, refused: Any) -> None:
    call(**{parameter: allowed})
    with pytest.raises(InputError, match=rf"^{parameter} (holds|is) {np.ravel(refused)[0]:g}: give "):
        call(**{parameter: refused})


@pytest.mark.parametrize(
    ("name", "spoiled", "message"),
    [
        ("directions", {"probs": [[0.0, 0.0]], "logits": 0.0}, "row of zeros"),
        ("inverse_overlaps", {"overlap": [[0.0, 1.0]]}, "square matrix"),
        ("inverse_overlaps", {"overlap": [[0.0, 1.0], [1.0, 0.0]]}, "same direction"),
        ("token_kinds", {"probs": [0.5, 0.5]}, "give a matrix"),
        ("decoder_growth", {"vocab_size": 2.5}, r"vocab_size holds 2\.5: give whole numbers"),
        ("decoder_growth", {"lr_y": "fast"}, "lr_y is 'fast'"),
        ("decoder_growth", {"t": [1.0, 1e308], "lr_y": 10}, "overflows: give a smaller time"),
        ("layer_overlaps", {"attention": [[0.25] * 4, [1.0, 0, 0, 0]], "vocab_size": 4}, "LayerNorm leaves it no"),
        ("position_prior", {"bias": [0.1, 0.2, 0.3]}, r"^part_probs ends in .*: give one per bucket\.$"),
        ("residual_directions", {"query": [0, 4, 1]}, r"give each of 3 classes an index below 4\.$"),
        ("residual_directions", {"query": [0]}, r"give each of 3 classes an index below 4\.$"),
        ("residual_directions", {"query": [-1, 2, 1]}, r"^query is \[-1, 2, 1\]: give ids of tokens"),
        ("symmetric_flow", {"times": [1.0, 1.0]}, "times must be increasing numbers of steps"),
        ("symmetric_flow", {"times": [[1.0, 2.0]]}, r"times has shape \(1, 2\): give numbers in a row"),
        ("symmetric_flow", {"vocab_size": 3}, "vocab_size is 3: give more tokens than the 3 next tokens"),
        ("symmetric_flow", {"classes_per_query": 2}, "classes_per_query is 2: it must divide the number of classes, 3"),
        ("symmetric_flow", {"decoder_gradient": "tru"}, "unknown decoder_gradient 'tru': did you mean 'true'"),
        ("lagged_attention", {"query": [5]}, "query has 1 ids and probs 3 rows"),
        ("lagged_attention", {"probs": [[0.5, 0.5]] * 3}, "not linearly independent"),
        ("lagged_attention", {"tau": [1.0, 1.0]}, "tau must be increasing numbers of at most 100"),
        ("lagged_attention", {"tau": [101.0]}, "tau must be increasing numbers of at most 100"),
        ("assumptions", {"seq_len": 2.5}, r"seq_len is 2\.5: give a whole number from 2"),
    ],
)
def test_what_does_not_fit_is_one_sentence(name: str, spoiled: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CALLS[name](**spoiled)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if "form" in call.arguments])
def test_a_form_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="unknown form 'exakt'"):
        CALLS[name](form="exakt")
