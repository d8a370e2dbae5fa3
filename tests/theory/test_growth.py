"""h, h* and the speed against high precision arithmetic and against their own differential equations."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scansnap import theory

pytestmark = pytest.mark.rounding


def h_to_many_digits(t: float, size: int, rate: float) -> mpmath.mpf:
    """Eq. 45 solved by bisection and Newton in 60 digits, without Wright's omega."""
    with mpmath.workdps(60):
        s = mpmath.mpf(size) * mpmath.mpf(rate) * mpmath.mpf(t)
        guess = min(s / size, mpmath.log(s + size))
        y = mpmath.findroot(lambda y: mpmath.expm1(y) + (size - 1) * y - s, guess)
        return y / size


@pytest.mark.parametrize("size", [2, 3, 10, 1000, 10**6])
@pytest.mark.parametrize("rate", [1e-3, 0.5, 10.0])
def test_h_has_twelve_digits_from_1e_minus_9_to_1e15(size: int, rate: float) -> None:
    times = np.geomspace(1e-9, 1e15, 49)
    h = theory.decoder_growth(times, vocab_size=size, lr_y=rate)
    wanted = [h_to_many_digits(t, size, rate) for t in times]
    errors = [abs((mpmath.mpf(float(a)) - b) / b) for a, b in zip(h, wanted, strict=True)]
    assert max(errors) < 1e-12


@given(t=st.floats(0, 1e15), size=st.integers(2, 10**6), rate=st.floats(1e-3, 10))
@settings(max_examples=200, deadline=None)
def test_growth_time_inverts_growth(t: float, size: int, rate: float) -> None:
    h = theory.decoder_growth(t, vocab_size=size, lr_y=rate)
    back = theory.growth_time(h, vocab_size=size, lr_y=rate)
    assert back == pytest.approx(t, rel=1e-11 * max(1.0, size * h))


def test_what_exp_cannot_reach_takes_forever() -> None:
    assert theory.growth_time(10.0, vocab_size=1000, lr_y=0.5) == np.inf
    assert theory.residual_size(10.0, vocab_size=1000) == 0
    h = theory.decoder_growth([[0.0], [1.0]], vocab_size=[10, 20, 30], lr_y=1.0)
    assert h.shape == (2, 3)
    assert (h[0] == 0).all()
