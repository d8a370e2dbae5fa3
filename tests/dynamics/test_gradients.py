"""The closed form (Lemma 1) in both engines against autograd of the plain forward pass, to 1e-12.

One step at a huge rate from a random (Y, Z) shows the gradient: (Y + rate G - Y) / rate.  The batch is the one that
`sample_sequences` gives for the same seed, so sampler, layout, engine and optimizer are all in the loop.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.dynamics.gradients import LayoutTensors, gradients, population_batch
from scansnap.dynamics.kernel_engine import KernelEngine
from scansnap.dynamics.yz_tensors import YZTensorEngine
from tests.dynamics.reference import (
    autograd,
    decoder_of,
    engine_of,
    logits_of,
    random_matrices,
    relative,
    start_of,
)
from tests.strategies import sequence_classes

ENGINES = pytest.mark.parametrize("kind", [KernelEngine, YZTensorEngine])
RATE = 2.0**40  # a power of two: multiplying and dividing by it loses nothing


def observed_gradient(kind, classes, decoder, attention, seed, **options):
    """dJ/dY and dJ/dZ on the rows that are kept, and the loss, from one update."""
    engine = engine_of(kind, classes, init=(decoder, attention), lr_y=RATE, lr_z=RATE, seeds=seed, **options)
    layout = start_of(classes, init=(decoder, attention)).layout
    before_y, before_z = layout.expand_decoder(decoder_of(engine))[0, 0], logits_of(engine)[0]
    loss, _ = engine.advance(1)
    after_y, after_z = layout.expand_decoder(decoder_of(engine))[0, 0], logits_of(engine)[0]
    return (after_y - before_y) / RATE, (after_z - before_z) / RATE, loss[0, 0]


@ENGINES
@settings(max_examples=60)
@given(classes=sequence_classes(), seed=st.integers(0, 10**6), length=st.integers(2, 40), batch=st.integers(1, 12))
def test_against_autograd(kind, classes, seed, length, batch) -> None:
    decoder, attention = random_matrices(classes, seed)
    sequences, owner = ss.sample_sequences(classes, num=batch, seq_len=length, seed=seed)
    dy, dz, loss = autograd(classes, decoder, attention, sequences, owner)
    rows = classes.contextual_tokens
    found_y, found_z, found_loss = observed_gradient(
        kind, classes, decoder, attention, seed, batch_size=batch, seq_len=length
    )
    assert relative(found_y, dy[rows]) < 1e-12
    # Z's gradient is a difference of projections: measured against the larger of it and what reaches the tokens.
    size = max(np.linalg.norm(dz), np.linalg.norm(dy))
    assert np.linalg.norm(found_z - dz[classes.queries][:, rows]) < 1e-12 * size
    assert found_loss == pytest.approx(loss, rel=1e-12)
    # What the layout leaves out has no gradient.
    dy[rows] = 0
    dz[np.ix_(classes.queries, rows)] = 0
    assert not dy.any()
    assert not dz.any()


@ENGINES
@pytest.mark.parametrize("size", [30.0, 200.0, 700.0])
@pytest.mark.parametrize("seed", range(4))
def test_huge_logits(kind, size: float, seed: int) -> None:
    """Attention logits of +-700, also on tokens that a sequence does not contain."""
    classes = ss.syn_small()
    decoder, attention = random_matrices(classes, seed)
    attention = size * np.sign(attention)
    sequences, owner = ss.sample_sequences(classes, num=6, seq_len=4, seed=seed)
    dy, dz, loss = autograd(classes, decoder, attention, sequences, owner)
    found_y, found_z, found_loss = observed_gradient(kind, classes, decoder, attention, seed, batch_size=6, seq_len=4)
    rows = classes.contextual_tokens
    assert np.isfinite(found_z).all()
    assert relative(found_y, dy[rows]) < 1e-12
    assert np.abs(found_z - dz[classes.queries][:, rows]).max() < 1e-12 * np.abs(dy).max()
    assert found_loss == pytest.approx(loss, rel=1e-12)


@ENGINES
def test_huge_output_logits(kind) -> None:
    """Decoder entries of +-700: softmax and loss without overflow, where the right token is hopeless too."""
    classes = ss.syn_small()
    decoder, attention = random_matrices(classes, 5)
    decoder = 700 * np.sign(decoder)
    sequences, owner = ss.sample_sequences(classes, num=6, seq_len=9, seed=5)
    dy, _, loss = autograd(classes, decoder, attention, sequences, owner)
    found_y, found_z, found_loss = observed_gradient(kind, classes, decoder, attention, 5, batch_size=6, seq_len=9)
    assert np.isfinite(found_z).all()
    assert relative(found_y, dy[classes.contextual_tokens]) < 1e-12
    assert found_loss == pytest.approx(loss, rel=1e-12)


@settings(max_examples=40)
@given(classes=sequence_classes(), seed=st.integers(0, 10**6))
def test_population_gradient(classes, seed) -> None:
    """At T -> infinity, by autograd through Eq. 5 written in full matrices."""
    decoder, attention = random_matrices(classes, seed)
    y = torch.from_numpy(decoder).requires_grad_()
    z = torch.from_numpy(attention).requires_grad_()
    c = torch.softmax(torch.log(torch.from_numpy(classes.probs)) + z[torch.tensor(classes.query)], dim=1)
    log_alpha = torch.log_softmax(c / c.norm(dim=1, keepdim=True) @ y, dim=1)
    objective = (
        torch.tensor(classes.weights) * log_alpha[torch.arange(len(c)), torch.tensor(classes.next_token)]
    ).sum()
    objective.backward()
    found_y, found_z, loss = observed_gradient(
        KernelEngine, classes, decoder, attention, seed, batch_size=None, seq_len=math.inf
    )
    rows = classes.contextual_tokens
    assert y.grad is not None
    assert z.grad is not None
    assert relative(found_y, y.grad.numpy()[rows]) < 1e-12
    expected = z.grad.numpy()[classes.queries][:, rows]
    assert np.linalg.norm(found_z - expected) < 1e-12 * max(np.linalg.norm(expected), np.linalg.norm(y.grad.numpy()))
    assert loss == pytest.approx(-objective.item(), rel=1e-12)


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
    found_y, _, loss = observed_gradient(
        KernelEngine, classes, decoder, np.zeros((34, 34)), 0, batch_size=None, seq_len=math.inf
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


def test_modified_decoder_moves_one_row_of_w() -> None:
    """Lemma 3: with F fixed, W = F^T Y moves as dw_j = 1[j = n] (e_n - alpha_n), class by class."""
    classes = ss.syn_medium(num_query=2)
    start = start_of(classes, init=random_matrices(classes, 1))
    layout = LayoutTensors.of(start.layout, dtype=torch.float64)
    y, z = torch.from_numpy(start.decoder), torch.from_numpy(start.attention_logits)
    moved = gradients(layout, y, z, population_batch(layout, 1), modified=True).decoder[0]
    probs, query = classes.probs[:, start.layout.rows], start.layout.query_index
    c = probs * np.exp(start.attention_logits[0][query])
    f = c / np.linalg.norm(c, axis=1, keepdims=True)
    logits = f @ start.layout.expand_decoder(start.decoder)[0, 0]
    alpha = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = np.eye(classes.vocab_size)[classes.next_token] - alpha
    result = f @ start.layout.expand_decoder(moved.numpy())[0]
    assert relative(result, expected * classes.weights[:, None]) < 1e-10


def test_modified_decoder_needs_independent_classes() -> None:
    classes = ss.SequenceClasses(probs=[[0.5, 0.5, 0, 0]] * 2, query=[2, 2], next_token=[0, 1], vocab_size=4)
    with pytest.raises(ss.InputError, match="linearly independent"):
        ss.train(classes, lr_y=1, lr_z=1, steps=1, decoder_gradient="modified", dtype="float64")
