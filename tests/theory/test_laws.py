"""Laws that the theory adds or corrects, each in 200 randomly drawn settings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scansnap import theory
from scansnap.base.errors import InputError

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


def test_the_shift_grows_without_limit_and_is_small_before_the_crossing() -> None:
    late = theory.shift_bounds(theory.decoder_growth(1e80, vocab_size=100, lr_y=0.5), vocab_size=100, lr_y=0.5)
    assert late.least > 18 * math.log(100)
    for size in (1e2, 1e5, 1e9):
        h = theory.decoder_growth(math.log(size) / 1e-3, vocab_size=size, lr_y=1e-3)
        assert theory.shift_bounds(h, vocab_size=size, lr_y=1e-3).most == pytest.approx(0.2246, rel=0.03)


@two_hundred
@given(sizes, rates, st.floats(1, 1e4), st.floats(0, 1))
def test_the_residual_deviates_by_no_more_than_proved(size: int, rate: float, mean: float, share: float) -> None:
    """|sigma| at both ends of the interval; the early bound is never above eta_Y Delta."""
    radius = 0.999 * share * mean
    exact = theory.residual_deviation(mean, radius, vocab_size=size, lr_y=rate)
    proved = theory.residual_deviation(mean, radius, vocab_size=size, lr_y=rate, form="proved")
    assert exact <= proved * (1 + 1e-9) + 1e-12
    assert exact <= rate * radius * (1 + 1e-9) + 1e-12


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
            float(theory.growth_bound(factor * turn, vocab_size=size, num_classes=classes, lr_y=rate, lr_z=lr_z,
                                      constant=constant))
            for rate in (lr_y, lr_y * 1.0001)
        )  # fmt: skip
        assert (fast > slow) == (sign > 0)


@two_hundred
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(0, 40))
def test_overlaps_with_layer_norm(seed: int, classes: int, more: int) -> None:
    """The closed form against subtracting the mean over all M entries."""
    rng = np.random.default_rng(seed)
    c = rng.exponential(size=(classes, 8)) * (rng.random((classes, 8)) < 0.6)
    c[np.arange(classes), np.arange(classes)] += 1
    c /= c.sum(axis=1, keepdims=True)
    whole = np.hstack([c, np.zeros((classes, more))])
    centered = whole - whole.mean(axis=1, keepdims=True)
    centered /= np.linalg.norm(centered, axis=1, keepdims=True)
    found = theory.layer_overlaps(c, vocab_size=8 + more)
    np.testing.assert_allclose(found, centered @ centered.T - np.diag(np.diag(centered @ centered.T)), atol=1e-12)


def test_attention_to_all_tokens_alike_has_no_direction() -> None:
    with pytest.raises(InputError, match="LayerNorm leaves it no direction"):
        theory.layer_overlaps([[0.25] * 4, [1.0, 0, 0, 0]], vocab_size=4)


@two_hundred
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_the_modified_step_is_longer_and_its_own_logit_as_fast(seed: int, classes: int) -> None:
    """|f_n - F E' e_n|^2 = 1 - E'_nn >= 1, and its product with f_n is one (claim lemma_3_rate)."""
    rng = np.random.default_rng(seed)
    probs = rng.exponential(size=(classes, 12)) * (rng.random((classes, 12)) < 0.5)
    probs[np.arange(classes), np.arange(classes)] += 0.5
    f = theory.directions(probs)
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
