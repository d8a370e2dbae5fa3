"""The closed form (Lemma 1) at extremes: huge and tiny numbers, T -> infinity; `test_architectures.py` has the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.dynamics.kernel_engine import KernelEngine
from scansnap.dynamics.yz_tensors import YZTensorEngine
from tests.dynamics.reference import (
    check_gradient,
    decoder_of,
    engine_of,
    logits_of,
    observed_gradient,
    population_gradients,
    random_matrices,
    relative,
    start_of,
)
from tests.strategies import sequence_classes

pytestmark = pytest.mark.rounding

ENGINES = pytest.mark.parametrize("kind", [KernelEngine, YZTensorEngine])


@ENGINES
@pytest.mark.parametrize("size", [30.0, 200.0, 700.0])
@pytest.mark.parametrize("seed", range(4))
def test_huge_logits(kind, size: float, seed: int) -> None:
    """Attention logits of +-700, also on tokens that a sequence does not contain."""
    decoder, attention = random_matrices(ss.syn_small(), seed)
    sequences, owner = ss.sample_sequences(ss.syn_small(), num=6, seq_len=4, seed=seed)
    check_gradient(kind, ss.syn_small(), decoder, size * np.sign(attention), sequences, owner, seeds=seed)


@ENGINES
def test_huge_output_logits(kind) -> None:
    """Decoder entries of +-700: softmax and loss without overflow, where the right token is hopeless too."""
    decoder, attention = random_matrices(ss.syn_small(), 5)
    sequences, owner = ss.sample_sequences(ss.syn_small(), num=6, seq_len=9, seed=5)
    check_gradient(kind, ss.syn_small(), 700 * np.sign(decoder), attention, sequences, owner, seeds=5)


@settings(max_examples=40)
@given(classes=sequence_classes(), seed=st.integers(0, 10**6))
def test_population_gradient(classes, seed) -> None:
    """At T -> infinity, by autograd through Eq. 5 written in full matrices."""
    decoder, attention = random_matrices(classes, seed)
    dy, dz, objective = population_gradients(classes, decoder, attention[classes.queries])
    found_y, found_z, loss, _ = observed_gradient(
        KernelEngine, classes, decoder, attention, seeds=seed, batch_size=None, seq_len=math.inf
    )
    rows = classes.contextual_tokens
    assert relative(found_y, dy[rows]) < 1e-12
    assert np.linalg.norm(found_z - dz[:, rows]) < 1e-12 * max(np.linalg.norm(dz), np.linalg.norm(dy))
    assert loss == pytest.approx(-objective, rel=1e-12)


@ENGINES
@pytest.mark.parametrize("momentum", [None, 0.9])
def test_row_sums_stay_zero(kind, momentum) -> None:
    """From a zero start the rows of Y and Z sum to zero for ever (Section 3.1)."""
    classes = ss.syn_medium(num_query=3)
    engine = engine_of(kind, classes, lr_y=2.0, lr_z=3.0, steps=60, momentum=momentum)
    engine.advance(60)
    y = start_of(classes).layout.expand_decoder(decoder_of(engine))[:, 0]
    assert np.abs(y).max() > 0.1
    assert np.abs(y.sum(2)).max() < 1e-13
    assert np.abs(logits_of(engine)).max() > 0.1
    assert np.abs(logits_of(engine).sum(2)).max() < 1e-13


def test_late_residual_keeps_its_digits() -> None:
    """1 - alpha_n at 1e-30, far below the rounding of alpha_n: the gradient still has all its digits."""
    classes = ss.syn_small()
    decoder = np.zeros((34, 34))
    decoder[:, classes.next_token] = -35.0
    for i in range(2):
        decoder[classes.distinct_tokens(i), classes.next_token[i]] = 120.0
    found_y, _, loss, _ = observed_gradient(
        KernelEngine, classes, decoder, np.zeros((34, 34)), batch_size=None, seq_len=math.inf
    )
    from mpmath import mp, mpf

    with mp.workdps(60):
        f = classes.probs[0] / np.linalg.norm(classes.probs[0])
        logits = [sum(mpf(float(a)) * mpf(float(b)) for a, b in zip(f, column, strict=True)) for column in decoder.T]
        weights = [mp.exp(x) for x in logits]
        n = int(classes.next_token[0])
        rest = sum(w for j, w in enumerate(weights) if j != n) / sum(weights)
        assert float(rest) < 1e-20
        expected = float(mpf(float(f[10])) * rest / 2)  # P(n) = 1/2
    assert found_y[10, n] == pytest.approx(expected, rel=1e-12)
    assert 0 < loss < 1e-20


def test_modified_decoder_needs_independent_classes() -> None:
    classes = ss.SequenceClasses(probs=[[0.5, 0.5, 0, 0]] * 2, query=[2, 2], next_token=[0, 1], vocab_size=4)
    with pytest.raises(ss.InputError, match="linearly independent"):
        ss.train(classes, lr_y=1, lr_z=1, steps=1, decoder_gradient="modified", dtype="float64")
