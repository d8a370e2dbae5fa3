"""The gradient in closed form (Lemma 1), for any number of runs and sequences at once, on any device.

For one sequence of class n with query m and token weights a_l (its counts, or P(l|n) for T -> infinity):

    c~_l = a_l exp(z_ml),     f = c~ / |c~|_2                                              (Eq. 5; the l1 norm cancels)
    logits = Y^T f,           x = e_n - alpha,    alpha = softmax(logits)                   (Eqs. 2, 16)
    dY = f x^T                                                                             (Eq. 3)
    g = Y x,                  dz_m = diag(c) (P_f^perp / |c|_2) g = f o (g - f (f . g))     (Eq. 4)

because X^T diag(b) X = diag(c) and diag(c) / |c|_2 = diag(f).  All gradients are of the log-likelihood J: parameters
move along them.  Rows and columns are those of `CompactLayout`; x is the residual of column groups.

The modified decoder gradient (Lemma 3, Eq. 26) replaces f in dY by f - F E' e_n, with F = [f_1 ... f_K] the directions
for T -> infinity and E' = I - (F^T F)^{-1}.  (The paper's D.1 defines E' with the other sign; from Lemma 14 on, and in
Eq. 28, it is used as here.)  At T -> infinity that is column n of F (F^T F)^{-1}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.errors import InputError
from scansnap.model.compact import CompactLayout


@dataclass(frozen=True)
class LayoutTensors:
    """The compact layout on a device."""

    support: Tensor  # (K, W) rows of each class's tokens; padding points one past the last row
    probs: Tensor  # (K, W) P(l|n)
    query_index: Tensor  # (K,)
    next_column: Tensor  # (K,)
    class_weights: Tensor  # (K,) P(n)
    multiplicity: Tensor  # (C,)
    column_rate: Tensor  # (C,)
    num_rows: int
    num_queries: int

    @classmethod
    def of(cls, layout: CompactLayout, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> LayoutTensors:
        inside = np.arange(layout.support.shape[1]) < layout.size[:, None]

        def put(array: NDArray[np.generic], kind: torch.dtype) -> Tensor:
            return torch.tensor(array, dtype=kind, device=device)

        return cls(
            support=put(np.where(inside, layout.support, layout.num_rows), torch.int64),
            probs=put(layout.support_probs, dtype),
            query_index=put(layout.query_index, torch.int64),
            next_column=put(layout.next_column, torch.int64),
            class_weights=put(layout.classes.weights, dtype),
            multiplicity=put(layout.multiplicity, dtype),
            column_rate=put(layout.column_rate, dtype),
            num_rows=layout.num_rows,
            num_queries=layout.num_queries,
        )


@dataclass(frozen=True)
class Batch:
    """Sequences of one update, for every run."""

    class_index: Tensor  # (R, B)
    token_weights: Tensor  # (R, B, W) counts or probabilities of the class's tokens, 0 for padding
    sample_weights: Tensor  # (R, B) sums to one over the batch


def population_batch(layout: LayoutTensors, runs: int) -> Batch:
    """Every class once with its probability, at T -> infinity: the expected batch-1 step."""
    num_classes = len(layout.query_index)
    return Batch(
        class_index=torch.arange(num_classes, device=layout.support.device).expand(runs, -1),
        token_weights=layout.probs.expand(runs, -1, -1),
        sample_weights=layout.class_weights.expand(runs, -1),
    )


@dataclass(frozen=True)
class Gradients:
    """The gradient of J, and the loss and accuracy that come with it."""

    decoder: Tensor  # (R, S, C), of the column groups: each of a group's mu columns moves by 1/mu of it
    attention: Tensor  # (R, Q, S)
    loss: Tensor  # (R,) -J
    accuracy: Tensor  # (R,) share of the batch whose next token alone has the largest logit


def gradients(
    layout: LayoutTensors, decoder: Tensor, attention: Tensor, batch: Batch, *, modified: bool = False
) -> Gradients:
    """Lemma 1 for decoder y (R, S, C) and attention z (R, Q, S); Lemma 3's decoder gradient if `modified`."""
    f = directions(layout, attention, batch.class_index, batch.token_weights)  # (R, B, W)
    rows = layout.support[batch.class_index]  # (R, B, W)
    dense = _scatter(layout, rows, f)  # (R, B, S)
    logits = dense @ decoder  # (R, B, C)
    residual, loss, correct = _residual(layout, logits, layout.next_column[batch.class_index])

    back = residual @ decoder.mT  # (R, B, S)
    g = torch.nn.functional.pad(back, (0, 1)).gather(2, rows)  # (R, B, W)
    along = (f * g).sum(2, keepdim=True)
    dz = f * (g - f * along) * batch.sample_weights[..., None]
    query = torch.nn.functional.one_hot(layout.query_index[batch.class_index], layout.num_queries)  # (R, B, Q)

    if modified:
        dense = dense + _modification(layout, attention)[:, :].gather(
            1, batch.class_index[..., None].expand(-1, -1, layout.num_rows)
        )
    weighted = residual * batch.sample_weights[..., None]
    return Gradients(
        decoder=dense.mT @ weighted,
        attention=query.to(dz.dtype).mT @ _scatter(layout, rows, dz),
        loss=(loss * batch.sample_weights).sum(1),
        accuracy=(correct * batch.sample_weights).sum(1),
    )


def directions(layout: LayoutTensors, attention: Tensor, class_index: Tensor, token_weights: Tensor) -> Tensor:
    """f, the l2-normalised attention over each sequence's own tokens (R, B, W)."""
    runs = attention.shape[0]
    rows = layout.support[class_index].clamp(max=layout.num_rows - 1)
    entries = layout.query_index[class_index][..., None] * layout.num_rows + rows
    z = attention.reshape(runs, -1).gather(1, entries.reshape(runs, -1)).reshape(entries.shape)
    z = z.masked_fill(token_weights <= 0, -torch.inf)
    unnormalised = token_weights * torch.exp(z - z.amax(2, keepdim=True))
    return unnormalised / unnormalised.norm(dim=2, keepdim=True)


def _scatter(layout: LayoutTensors, rows: Tensor, values: Tensor) -> Tensor:
    """Values at a sequence's tokens as a vector over all rows (R, B, S)."""
    dense = values.new_zeros(*values.shape[:2], layout.num_rows + 1)
    return dense.scatter_(2, rows, values)[..., :-1]


def _residual(layout: LayoutTensors, logits: Tensor, next_column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e_n - p, the loss, and whether n alone has the largest logit.

    1 - p_n is the sum of the other probabilities, never a difference from one: late in training it is far below the
    rounding of p_n.
    """
    index = next_column[..., None]
    own = logits.gather(2, index)
    others = logits.masked_fill(layout.multiplicity == 0, -torch.inf).scatter(2, index, -torch.inf)
    largest = others.amax(2, keepdim=True)
    top = torch.maximum(own, largest)
    weights = layout.multiplicity * torch.exp(others - top)
    rest = weights.sum(2, keepdim=True)
    own_exp = torch.exp(own - top)
    total = rest + own_exp
    residual = (-weights / total).scatter(2, index, rest / total)
    loss = torch.where(own - top > -30, torch.log1p(rest / own_exp), torch.log(total) - (own - top))
    return residual, loss.squeeze(2), (own > largest).squeeze(2).to(logits.dtype)


def _modification(layout: LayoutTensors, attention: Tensor) -> Tensor:
    """-F E' e_n for every class (R, K, S)."""
    runs = attention.shape[0]
    population = population_batch(layout, runs)
    f = directions(layout, attention, population.class_index, population.token_weights)
    dense = _scatter(layout, layout.support.expand(runs, -1, -1), f)  # (R, K, S), rows f_n
    inverse, singular = torch.linalg.inv_ex(dense @ dense.mT)
    if bool(singular.any()):
        raise InputError(
            "two classes have the same attention direction, so F^T F cannot be inverted: "
            "the modified decoder gradient needs linearly independent classes (Assumption 2)."
        )
    return inverse @ dense - dense
