"""An additive bias on attention logits by relative position (Section 7), fixed or learned.

With b_g the bias of bucket g and a_gl how often token l is in it, the positions of a sequence of query m weigh

    a_l exp(z_ml) = sum_g a_gl exp(z_ml + b_g),      a_l = sum_g exp(b_g) a_gl,

so attention is the softmax of z + ln a as before, with biased counts (sizes times P_g(l|n) for T -> infinity) instead
of counts.  From dJ/d ln a_l, which for the softmax is dz_l of the sequence,

    dJ/db_g = sum_l (dJ/d ln a_l) s_gl,      s_gl = exp(b_g) a_gl / a_l,

the part of token l that comes from bucket g.  A bias that is the same in all buckets cancels, and so does any bias if
tokens do not depend on their position and sequences are long: then a_l is in proportion to P(l|n) whatever b is.  If
they do, a fixed bias is a prior on contextual tokens: it is training on other classes, sum_g w_g P_g(l|n) with w_g in
proportion to sizes[g] exp(b_g).

The bias is one vector for all queries and heads; learned, it moves at the rate eta_Z of the logits that it is added to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation import checks
from scansnap.validation.argument_types import ArgumentType

PositionBias = Mapping[str, float] | Sequence[float] | NDArray[np.floating]

WANTED = "one finite number for each bucket of positions, or {'alibi': slope}"


@dataclass(frozen=True)
class BiasType(ArgumentType):
    """Values of the option `position_bias`."""

    def check(self, name: str, value: Any) -> dict[str, float] | tuple[float, ...]:
        if isinstance(value, Mapping):
            if set(value) != {"alibi"}:
                raise InputError(f"{name} is {short_repr(dict(value))}: give {WANTED}.")
            return {"alibi": checks.number(f"{name} of 'alibi'", value["alibi"])}
        return tuple(checks.series(name, value, WANTED).tolist())

    def read(self, name: str, text: str) -> dict[str, float] | list[float]:
        try:
            if text.startswith("alibi="):
                return {"alibi": float(text.removeprefix("alibi="))}
            return [float(part) for part in text.split(",")]
        except ValueError:
            raise InputError(f"{name} is '{text}': give numbers as 0,-1,-2, or alibi=0.5.") from None

    def plain(self, value: dict[str, float] | tuple[float, ...]) -> dict[str, float] | list[float]:
        return dict(value) if isinstance(value, Mapping) else list(value)


def bias_by_bucket(
    classes: SequenceClasses, value: Mapping[str, float] | tuple[float, ...] | None
) -> NDArray[np.float64]:
    """One number for each bucket (G,): as given, or ALiBi's slope times the distance."""
    if value is None:
        return np.zeros(classes.num_buckets)
    if isinstance(value, Mapping):
        if (classes.sizes > 1).any():
            raise InputError("ALiBi's bias differs from position to position: use buckets of one position each.")
        return -float(value["alibi"]) * np.arange(1, classes.num_buckets + 1, dtype=np.float64)
    if len(value) != classes.num_buckets:
        raise InputError(
            f"position_bias has {len(value)} numbers for {classes.num_buckets} buckets of positions: give {WANTED}."
        )
    return np.array(value)
