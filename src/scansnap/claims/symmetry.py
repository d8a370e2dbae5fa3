"""Symmetric classes (Corollary 2) as arguments of `theory.symmetric_flow`."""

from __future__ import annotations

from typing import Any

import numpy as np

from scansnap import theory
from scansnap.data.sequence_classes import SequenceClasses


def is_symmetric(classes: SequenceClasses) -> bool:
    """Whether classes are interchangeable: (2) and (3) of Corollary 2, equally likely, evenly spread over queries."""
    shape = theory.symmetry(classes.probs[:, classes.contextual_tokens], query=classes.query)
    per_query = np.unique(classes.query, return_counts=True)[1]
    even = bool(np.ptp(classes.weights) < 1e-12 and np.ptp(per_query) == 0)
    return shape.matching_distinct and shape.shared_common and even


def symmetric_arguments(classes: SequenceClasses) -> dict[str, Any]:
    """Probabilities and sizes of symmetric classes."""
    ids, probs = classes.support(0), classes.support_probs(0)
    common = np.isin(ids, classes.common_tokens)
    return {
        "distinct_probs": probs[~common],
        "common_probs": probs[common],
        "num_classes": classes.num_classes,
        "vocab_size": classes.vocab_size,
        "classes_per_query": classes.num_classes // len(classes.queries),
    }
