"""What the theory's functions take: numbers at the edge of what is allowed, every form, and every default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scansnap.runtime.errors import InputError

for package in ("lightning", "transformers"):
    pytest.importorskip(package, reason=f"the list of public names needs {package}")
from tests.faults.calls import good_calls  # noqa: E402

CALLS = {name.removeprefix("theory."): call for name, call in good_calls("theory").items()}
SIGNED = (
    "bound",
    "drive",
    "initial_logit",
    "logit",
    "logits",
    "momentum",
    "other_logit",
    "sigma",
    "theta",
    "tolerance",
)
VELOCITIES = ("drive", "early_logits", "shared_overlap_logits", *(name for name in CALLS if name.endswith("_velocity")))
"""What may be negative, and functions in proportion to their rates, which are taken as they are."""


@pytest.mark.parametrize("value", [-1.0, 0.0, 1e-100])
@pytest.mark.parametrize("name", CALLS)
def test_a_number_out_of_range_is_refused_by_its_name_or_does_no_harm(name: str, value: float) -> None:
    """Nothing divides by it, takes its logarithm or its root: no result holds a NaN or an infinity that it caused."""
    call = CALLS[name]
    for parameter, good in call.arguments.items():
        if isinstance(good, int | float) and not isinstance(good, bool):
            sentence = ""
            try:
                with np.errstate(divide="raise", invalid="raise"):
                    call(**{parameter: value})
            except InputError as error:
                sentence = str(error)
            harmless = not sentence and (value >= 0 or parameter in SIGNED or name in VELOCITIES)
            assert harmless or sentence.startswith(f"{parameter} "), (parameter, sentence)


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
        ("residual_directions", {"query": [3]}, r"give each of 1 classes an index below 3\.$"),
        ("residual_directions", {"query": [0, 1]}, r"give each of 1 classes an index below 3\.$"),
        ("residual_directions", {"query": [-1, 2, 1]}, r"^query is \[-1, 2, 1\]: give ids of tokens"),
        ("symmetric_flow", {"times": [1.0, 1.0]}, "times must be increasing numbers of steps"),
        ("symmetric_flow", {"times": [[1.0, 2.0]]}, r"times has shape \(1, 2\): give numbers in a row"),
        ("symmetric_flow", {"vocab_size": 3}, "vocab_size is 3: give more tokens than the 3 next tokens"),
        ("symmetric_flow", {"classes_per_query": 2}, "classes_per_query is 2: it must divide the number of classes, 3"),
        ("symmetric_flow", {"decoder_gradient": "tru"}, "unknown decoder_gradient 'tru': did you mean 'true'"),
        ("lagged_attention", {"query": [5]}, "query has 1 ids and probs 2 rows"),
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
