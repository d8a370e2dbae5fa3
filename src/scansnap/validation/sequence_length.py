"""The length T of a sequence: T - 1 contextual tokens and the query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any

from scansnap.runtime.errors import InputError
from scansnap.validation.argument_types import Kind, read_number
from scansnap.validation.checks import shortened


def contextual_length(seq_len: float) -> int:
    """T - 1, the contextual tokens of a sequence of finite length T."""
    real = isinstance(seq_len, Real) and not isinstance(seq_len, bool)
    if not real or not 2 <= seq_len < 2**31 or seq_len != int(seq_len):
        raise InputError(
            f"seq_len is {shortened(seq_len)}: give a whole number from 2 (one contextual token and the query) to "
            "2^31, or math.inf where sequences may be infinitely long."
        )
    return int(seq_len) - 1


@dataclass(frozen=True)
class LengthKind(Kind):
    """Values of the option `seq_len`: a whole number of at least 2, or infinity."""

    def check(self, name: str, value: Any) -> float:
        if isinstance(value, float) and value == math.inf:
            return math.inf
        return contextual_length(value) + 1

    def read(self, name: str, text: str) -> float:
        if text.lower() in ("inf", "infinity"):
            return math.inf
        return read_number(name, text, int, "a whole number, or inf for T → ∞")

    def plain(self, value: float) -> float | str:
        return "inf" if math.isinf(value) else value


Length = Annotated[float, LengthKind()]
