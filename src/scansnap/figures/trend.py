"""What the paper says that a figure shows, and what the numbers say: one `Trend` for each statement."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Trend:
    """A statement about a figure, put to a test that can fail."""

    statement: str  # what the paper says, in our words
    expected: str  # what was asked of `measured`
    measured: float
    standard_error: float | None  # None where nothing is random
    p_value: float | None  # of the test that `note` names; None where nothing is random
    holds: bool
    note: str  # the test, its sample size, and exceptions by name
    settled: bool = True  # False where it does not hold for want of seeds only: nothing significant speaks against it

    @property
    def verdict(self) -> str:
        """Holds, fails, or not settled."""
        return "holds" if self.holds else "fails" if self.settled else "not settled"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found = {**asdict(self), "verdict": self.verdict}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in found.items()}
