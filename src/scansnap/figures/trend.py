"""A statement about a figure, and what the numbers say about it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from scansnap.runtime.errors import number_text


@dataclass(frozen=True)
class Trend:
    """A statement about a figure with the result of a test that can fail.

    >>> ss.Trend("It grows.", "above 0", 1.0, None, None, holds=True, note="exact").verdict
    'holds'
    """

    statement: str  # what the paper says, in our words
    expected: str  # what `measured` should be
    measured: float
    standard_error: float | None  # None where nothing is random
    p_value: float | None  # of the test that `note` names; None where nothing is random
    holds: bool
    note: str  # the test, its sample size, and the exceptions by name
    settled: bool = True  # False where more seeds are needed: it does not hold, but nothing significant contradicts it

    @property
    def verdict(self) -> str:
        """Holds, fails, or not settled."""
        return "holds" if self.holds else "fails" if self.settled else "not settled"

    @property
    def measured_text(self) -> str:
        """The measured value with its standard error, if it has one."""
        has_error = self.standard_error is not None and math.isfinite(self.standard_error)
        return number_text(self.measured, ".4g") + (f" ± {self.standard_error:.2g}" if has_error else "")

    @property
    def p_text(self) -> str:
        """The p-value, empty if there is none."""
        return "" if self.p_value is None else number_text(self.p_value, ".2g")

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        values = {**asdict(self), "verdict": self.verdict}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
