"""Laws that the theory adds or corrects, each in 200 randomly drawn settings."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scansnap import theory
from tests.theory.test_overlap import random_directions

pytestmark = pytest.mark.rounding

two_hundred = settings(max_examples=200, deadline=None)
sizes = st.integers(4, 10**6)
rates = st.floats(0.01, 2.0)


@two_hundred
@given(sizes, rates, st.integers(1, 400))
def test_the_shift_lies_between_its_bounds(size: int, rate: float, steps: int) -> None:
    """c with h*(s) = h(s + c), from its definition; the bounds are of the size of c, not just on its two sides."""
    growth = theory.decoder_growth_steps(steps, vocab_size=size, lr_y=rate)[-1]
    shift = float(theory.growth_time(growth, vocab_size=size, lr_y=rate)) - steps
    bounds = theory.shift_bounds(growth, vocab_size=size, lr_y=rate)
    rounding = 1e-11 * steps / min(rate, 1.0)
    assert bounds.least - rounding <= shift <= bounds.most + rounding
    assert bounds.most <= bounds.least * math.exp(rate)


@pytest.mark.parametrize("rate", [1e-17, 1e-8, 0.3, 1.0, 1.5, 700.0, 2000.0, 1e9])
def test_the_bounds_of_the_shift_keep_their_digits(rate: float) -> None:
    """Against the formulas as they are derived, in 50 digits; the upper bound is beyond all numbers at last."""
    bounds = theory.shift_bounds(0.002, vocab_size=1000, lr_y=rate)
    with mpmath.workdps(50):
        x = mpmath.mpf(rate)
        ahead = mpmath.log((999 + mpmath.e ** (1000 * mpmath.mpf(0.002))) / 1000) / 2
        excess = 2 * (mpmath.expm1(x) - x) / x
        least, most = float(excess / mpmath.expm1(x) * ahead), float(excess / x * ahead)
    assert bounds.least == pytest.approx(least, rel=1e-14)
    assert bounds.most == pytest.approx(most, rel=1e-14)


@two_hundred
@given(st.integers(8, 10**12), rates, st.floats(1e-6, 1), st.floats(1, 1e12))
def test_h_is_near_its_leading_orders(size: int, rate: float, early: float, late: float) -> None:
    """Up to t'_0 within 0.5672/ln M from below, from t_0 on within ln 2 of ln(M eta_Y s + 1)."""
    first = early * math.log(size) / rate
    ratio = size * theory.decoder_growth(first, vocab_size=size, lr_y=rate) / (rate * first)
    assert 1 - 0.5672 / math.log(size) - 1e-9 <= ratio <= 1 + 1e-9
    second = late * float(theory.snap_start(vocab_size=size, num_classes=1, lr_y=rate))
    grown = size * theory.decoder_growth(second, vocab_size=size, lr_y=rate)
    assert -math.log(2) - 1e-9 <= grown - math.log(size * rate * second + 1) <= 1e-9


@two_hundred
@given(st.integers(8, 10**9), st.integers(1, 50), st.floats(0.001, 10), st.floats(0.001, 1), st.floats(0.05, 50))
def test_the_order_of_rates_turns_once(size: int, classes: int, lr_y: float, lr_z: float, constant: float) -> None:
    """B_n rises with eta_Y before the turning point and falls after it, which comes before t_0."""
    turn = float(theory.rate_order_time(vocab_size=size, num_classes=classes, lr_y=lr_y))
    assert turn < theory.snap_start(vocab_size=size, num_classes=classes, lr_y=lr_y)
    for factor, sign in ((0.1, 1), (0.97, 1), (1.03, -1), (100.0, -1)):
        slow, fast = (
            float(
                theory.growth_bound(
                    factor * turn, vocab_size=size, num_classes=classes, lr_y=rate, lr_z=lr_z, constant=constant
                )
            )
            for rate in (lr_y, lr_y * 1.0001)
        )
        assert (fast > slow) == (sign > 0)


@two_hundred
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(0, 40))
def test_overlaps_with_layer_norm(seed: int, classes: int, more: int) -> None:
    """The closed form against subtracting the mean over all M entries."""
    f = random_directions(seed, classes, 8, 0.6)
    c = f / f.sum(axis=1, keepdims=True)
    whole = np.hstack([c, np.zeros((classes, more))])
    centered = whole - whole.mean(axis=1, keepdims=True)
    centered /= np.linalg.norm(centered, axis=1, keepdims=True)
    found = theory.layer_overlaps(c, vocab_size=8 + more)
    np.testing.assert_allclose(found, centered @ centered.T - np.diag(np.diag(centered @ centered.T)), atol=1e-12)


@two_hundred
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_the_modified_step_is_longer_and_its_own_logit_as_fast(seed: int, classes: int) -> None:
    """|f_n - F E' e_n|^2 = 1 - E'_nn >= 1, and its product with f_n is one (claim lemma_3_rate)."""
    f = random_directions(seed, classes, 12, 0.5)
    inverse = theory.inverse_overlaps(theory.overlaps(f))
    step = f - inverse @ f
    squared = (step**2).sum(axis=1)
    np.testing.assert_allclose(squared, 1 - np.diag(inverse), rtol=1e-9)
    assert (squared >= 1 - 1e-9).all()
    np.testing.assert_allclose((f * step).sum(axis=1), 1.0, rtol=1e-9)


@two_hundred
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(2, 3))
def test_spurious_share_by_exhaustion(seed: int, num_sequences: int, seq_len: int) -> None:
    """Over all sets of sequences of drawn classes, with their probabilities."""
    rng = np.random.default_rng(seed)
    probs = rng.exponential(size=(2, 3)) * (rng.random((2, 3)) < 0.8)
    probs[:, 0] += 0.1
    probs /= probs.sum(axis=1, keepdims=True)
    weights = rng.dirichlet([2, 2])
    common = (probs > 0).all(axis=0)
    # what one sequence may be: its class and the set of tokens that it has
    kinds = [(k, subset) for k in range(2) for subset in range(1, 8)]
    chance = np.array([weights[k] * _exactly(probs[k], subset, seq_len - 1) for k, subset in kinds])
    expected = np.zeros(2)
    for drawn in np.ndindex(*(len(kinds),) * num_sequences):
        likely = float(np.prod(chance[list(drawn)]))
        has = [0, 0]
        for i in drawn:
            has[kinds[i][0]] |= kinds[i][1]
        for n in range(2):
            alone = has[n] & ~has[1 - n]
            expected[n] += likely * sum(probs[n, token] for token in range(3) if alone >> token & 1 and common[token])
    share = theory.spurious_share(probs, weights=weights, seq_len=seq_len, num_sequences=num_sequences)
    np.testing.assert_allclose(share, expected, rtol=1e-9, atol=1e-12)


def _exactly(probs: np.ndarray, subset: int, length: int) -> float:
    """The chance that `length` tokens drawn from `probs` are those of the subset, each at least once."""
    total = 0.0
    for tokens in np.ndindex(*(3,) * length):
        if sum(1 << token for token in set(tokens)) == subset:
            total += float(np.prod([probs[token] for token in tokens]))
    return total


@two_hundred
@given(st.integers(2, 400), st.data())
def test_equal_overlaps_slow_the_own_logit_by_their_share(size: int, data: st.DataObject) -> None:
    """Eqs. 41 and 42 summed over classes at alpha = 1/M, for 1 <= K <= M."""
    classes = data.draw(st.integers(1, size))
    overlap = data.draw(st.floats(0, 0.99))
    residual = np.eye(size)[:classes] - 1 / size
    own = residual[0, 0] + overlap * residual[1:, 0].sum()
    rate = theory.shared_overlap_rate(overlap, vocab_size=size, num_classes=classes)
    assert own == pytest.approx((1 - 1 / size) * rate, rel=1e-9, abs=1e-12)


@two_hundred
@given(st.integers(100, 10**9), st.integers(1, 50), st.floats(0.02, 1), st.floats(0, 1), st.floats(1, 1e9))
def test_the_speed_lies_between_its_bounds(size: int, classes: int, rate: float, early: float, late: float) -> None:
    """Lemma 9 on both sides, from the time at which h passes its lower zero up to t'_0, and from t_0 on."""
    arguments = {"vocab_size": size, "num_classes": classes, "lr_y": rate}
    low = size ** -(2 - float(theory.growth_crossings(vocab_size=size).omega_0))
    least = classes * float(theory.growth_time(low, vocab_size=size, lr_y=rate))
    t = least * (float(theory.scan_end(**arguments)) / least) ** early
    bounds = theory.speed_scanning(t, **arguments)
    assert bounds.least * (1 - 1e-9) <= theory.speed(t, **arguments) <= bounds.most * (1 + 1e-9)
    t = late * float(theory.snap_start(**arguments))
    bounds = theory.speed_snapping(t, **arguments)
    assert bounds.least * (1 - 1e-9) <= theory.speed(t, **arguments) <= bounds.most * (1 + 1e-9)


@two_hundred
@given(st.integers(10, 10**6), st.integers(1, 50), rates, st.floats(1e-3, 1), st.floats(0.05, 50), st.floats(0, 9))
def test_b_n_solves_the_equation_of_theorem_4(
    size: int, classes: int, lr_y: float, lr_z: float, constant: float, log_time: float
) -> None:
    """dB_n/dt = eta_Z gamma e^(-4 B_n)/C_0 and B_n(0) = 0, by central differences in ln t."""
    arguments = {"vocab_size": size, "num_classes": classes, "lr_y": lr_y}
    more = {**arguments, "lr_z": lr_z, "constant": constant}
    t = classes / lr_y * 10**log_time
    below, above = (float(theory.growth_bound(t * math.exp(d), **more)) for d in (-1e-4, 1e-4))
    slope = (above - below) / 2e-4 / t
    bound = float(theory.growth_bound(t, **more))
    wanted = lr_z * float(theory.speed(t, **arguments)) * math.exp(-4 * bound) / constant
    assert slope == pytest.approx(wanted, rel=1e-4)
    assert theory.growth_bound(0.0, **more) == 0


@two_hundred
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.floats(0.05, 1.0))
def test_bounds_of_chi_follow_from_drive_and_weight(seed: int, steps: int, weight: float) -> None:
    """Eq. 12 with P(n) for drawn drives xi >= 0 and directions f that never fall below f(0)."""
    rng = np.random.default_rng(seed)
    xi = rng.exponential(size=steps)
    f = np.clip(np.maximum.accumulate(rng.uniform(0.05, 1.0, size=steps)), 0, 1)
    bound, logit = xi.sum(), weight * (f**2 * xi).sum()
    least, most = theory.growth_factor_bounds(bound, f[0], weight=weight)
    assert least * (1 - 1e-9) <= theory.growth_factor(logit) <= most * (1 + 1e-9)
