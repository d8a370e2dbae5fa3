"""The gradient of the 1-layer transformer as it is written down, position by position, without any formula for it.

A forward pass made of exp, log, sqrt and sums is a function of complex numbers, and f(x + ih) = f(x) + ih f'(x) + ...:
the imaginary part of f(x + ih) is h f'(x), and with h = 1e-100 nothing else is left, and nothing cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

H = 1e-100

FloatArray = NDArray[np.float64]
Numbers = NDArray[Any]  # real or complex


def plain_gradients(
    sequences: NDArray[np.int64], next_token: NDArray[np.int64], decoder: FloatArray, attention_logits: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """dJ/dY and dJ/dZ (M x M) of the mean log-likelihood J of these sequences, whose last token is the query.

    Only logits of pairs (query, token) of a sequence move it.  The outputs are linear in Y: what the derivative by an
    output is to the output, the derivative by a row of Y is to the direction's entry in that row.
    """
    direction = directions(sequences, attention_logits)
    outputs = direction @ decoder
    slopes = np.zeros(outputs.shape)
    for j in range(outputs.shape[1]):
        moved = outputs.astype(complex)
        moved[:, j] += 1j * H
        slopes[:, j] = likelihoods(moved, next_token).imag / H
    by_logit = np.zeros_like(attention_logits)
    pairs = np.stack([np.repeat(sequences[:, -1], sequences.shape[1] - 1), sequences[:, :-1].ravel()])
    for m, token in np.unique(pairs, axis=1).T:
        logits = attention_logits.astype(complex)
        logits[m, token] += 1j * H
        own = sequences[:, -1] == m
        there = directions(sequences[own], logits) @ decoder
        by_logit[m, token] = likelihoods(there, next_token[own]).imag.sum() / H
    return direction.T @ slopes / len(sequences), by_logit / len(sequences)


def directions(sequences: NDArray[np.int64], attention_logits: Numbers) -> Numbers:
    """The attended tokens of each sequence, normalized (Eq. 2)."""
    scores = np.exp(attention_logits[sequences[:, -1:], sequences[:, :-1]])
    attended = np.zeros((len(sequences), len(attention_logits)), scores.dtype)
    np.add.at(attended, (np.arange(len(sequences))[:, None], sequences[:, :-1]), scores)
    attended /= scores.sum(axis=1, keepdims=True)
    return attended / np.sqrt((attended**2).sum(axis=1, keepdims=True))


def likelihoods(outputs: Numbers, next_token: NDArray[np.int64]) -> Numbers:
    """The log-likelihood of each next token."""
    own = outputs[np.arange(len(outputs)), next_token]
    return own - np.log(np.exp(outputs).sum(axis=1))
