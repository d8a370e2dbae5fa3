"""Comparisons of a claim at the edge of what they allow."""

from __future__ import annotations

import scansnap as ss
from scansnap.claims.check import Check, Setting


def test_a_zero_is_not_positive() -> None:
    check = Check(Setting(ss.syn_small()))
    check.positive("a zero", [1.0, 0.0])
    check.positive("the least there is", [1.0, 5e-324])
    zero, least = check.measurements
    assert (zero.holds, zero.deviation) == (False, 0.5)
    assert (least.holds, least.deviation) == (True, 0.0)
