"""The gradient in closed form (Lemma 1), for any number of runs and sequences at once, on any device.

For one sequence of class n with query m and token weights a_l (its counts, or P(l|n) for T -> infinity):

    c~_l = a_l exp(z_ml),     f = c~ / |c~|_2                                              (Eq. 5; the l1 norm cancels)
    logits = Y^T f,           x = e_n - alpha,    alpha = softmax(logits)                   (Eqs. 2, 16)
    dY = f x^T                                                                             (Eq. 3)
    g = Y x,                  dz_m = diag(c) (P_f^perp / |c|_2) g = f o (g - f (f . g))     (Eq. 4)

because X^T diag(b) X = diag(c) and diag(c) / |c|_2 = diag(f).  All gradients are of the log-likelihood J: parameters
move along them.  Rows and columns are those of `CompactLayout`; x is the residual of column groups.  `readout.py` has
what other layers put between z and the decoder, and the gradient back: f becomes their direction v.  The directions of
several heads are stacked, like their Y: logits = sum_h Y_h^T v_h, and all else is the same.

The modified decoder gradient (Lemma 3, Eq. 26) replaces f in dY by f - F E' e_n, with F = [f_1 ... f_K] the directions
for T -> infinity and E' = I - (F^T F)^{-1}.  (The paper's D.1 defines E' with the other sign; from Lemma 14 on, and in
Eq. 28, it is used as here.)  At T -> infinity that is column n of F (F^T F)^{-1}.  It needs only that the columns of F
are the directions by which Y is read, so it holds for v too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.data.named_classes import Data, as_source
from scansnap.data.source import Batches, Draw
from scansnap.dynamics.readout import Directions, Readout
from scansnap.dynamics.yz_flow import StateLayout
from scansnap.dynamics.yz_tasks import SINGULAR
from scansnap.runtime.errors import InputError
from scansnap.systems.system import softmax_residual
from scansnap.systems.yz.architecture import Addition, AttentionMap, Layer, Normalization
from scansnap.systems.yz.compact import CompactLayout
from scansnap.validation.argument_types import Seed
from scansnap.validation.options import from_names
from scansnap.validation.validate import validated

FloatArray = NDArray[np.float64]

DRAWN_AT_ONCE = 2**22
"""Numbers drawn ahead for all seeds."""


@dataclass(frozen=True)
class LayoutTensors:
    """The compact layout on a device."""

    support: Tensor  # (K, W) rows of each class's tokens; padding points one past the last row
    probs: Tensor  # (K, S) P(l|n)
    attention_row: Tensor  # (K, H) rows of Z of each class, one for each head
    query_one_hot: Tensor  # (K, Q)
    next_column: Tensor  # (K,)
    class_weights: Tensor  # (K,) P(n)
    log_multiplicity: Tensor  # (C,) ln mu
    entry_rate: Tensor  # (C,) or (H D, C): 1 / (mu nu), the share of a group's gradient that moves each entry of Y
    readout: Readout
    bucket_probs: Tensor | None = None  # (K, G, S) P_g(l|n) by bucket of positions, times its share

    @classmethod
    def of(cls, layout: CompactLayout, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> LayoutTensors:
        inside = np.arange(layout.support.shape[1]) < layout.size[:, None]
        heads, classes = layout.layer.heads, layout.classes

        def put(array: NDArray[np.generic], kind: torch.dtype) -> Tensor:
            return torch.tensor(array, dtype=kind, device=device)

        return cls(
            support=put(np.where(inside, layout.support, layout.num_rows), torch.int64),
            probs=put(layout.dense_probs, dtype),
            attention_row=put(layout.query_index[:, None] * heads + np.arange(heads), torch.int64),
            query_one_hot=put(np.eye(layout.num_queries)[layout.query_index], dtype),
            next_column=put(layout.next_column, torch.int64),
            class_weights=put(classes.weights, dtype),
            log_multiplicity=put(np.log(layout.multiplicity), dtype),
            entry_rate=put(layout.entry_rate, dtype),
            readout=Readout.of(layout, dtype=dtype, device=device),
            bucket_probs=put(classes.bucket_probs, dtype) if classes.num_buckets else None,
        )


@dataclass(frozen=True)
class Batch:
    """Sequences of one update, for every run."""

    class_index: Tensor  # (R, B)
    token_weights: Tensor  # (R, B, S) counts or probabilities of all contextual tokens
    sample_weights: Tensor  # (R, B) sums to one over the batch
    buckets: Tensor | None = None  # (R, B, G, S) the same by bucket of positions, where tokens depend on it

    def __getitem__(self, runs: slice) -> Batch:
        buckets = None if self.buckets is None else self.buckets[runs]
        return Batch(self.class_index[runs], self.token_weights[runs], self.sample_weights[runs], buckets)


def population_batch(layout: LayoutTensors, runs: int) -> Batch:
    """Every class once with its probability, at T -> infinity: the expected batch-1 step."""
    num_classes = len(layout.attention_row)
    return Batch(
        class_index=torch.arange(num_classes, device=layout.probs.device).expand(runs, -1),
        token_weights=layout.probs.expand(runs, -1, -1),
        sample_weights=layout.class_weights.expand(runs, -1),
        buckets=None if layout.bucket_probs is None else layout.bucket_probs.expand(runs, -1, -1, -1),
    )


class TensorBatches:
    """The batches of updates as tensors.  Runs of one seed share its sequences, which are drawn and copied once."""

    def __init__(self, layout: LayoutTensors, batches: Batches, seeds: NDArray[np.uint64]) -> None:
        self._layout, self._batches, self._runs = layout, batches, len(seeds)
        self._seeds, of_run = np.unique(seeds, return_inverse=True)
        self._of_run = torch.as_tensor(of_run, device=layout.probs.device)
        numbers = len(self._seeds) * batches.size * layout.support.shape[1] * max(batches.source.classes.num_buckets, 1)
        self._window = max(1, DRAWN_AT_ONCE // numbers)
        self._drawn, self._first = Draw(np.empty((0, 0, 0), np.int64), np.empty(0, np.int64)), 0

    def at(self, step: int) -> Batch:
        """The batch of an update."""
        layout, batches, probs = self._layout, self._batches, self._layout.probs
        if batches.is_population:
            return population_batch(layout, self._runs)
        if not self._first <= step < self._first + self._drawn.class_index.shape[1]:
            draws = [batches.draw(int(seed), step, self._window) for seed in self._seeds]
            index, numbers = np.stack([d.class_index for d in draws]), np.stack([d.counts for d in draws])
            self._drawn, self._first = Draw(index, numbers), step
        place = step - self._first
        class_index = torch.as_tensor(self._drawn.class_index[:, place], device=probs.device)  # (U, B)
        weights = torch.as_tensor(batches.class_weights, dtype=probs.dtype, device=probs.device)[class_index]
        buckets = None
        if batches.length == 0:
            tokens = probs[class_index]
            if layout.bucket_probs is not None:
                buckets = layout.bucket_probs[class_index]
        else:
            counts = torch.as_tensor(self._drawn.counts[:, place], device=probs.device).to(probs.dtype)
            rows = layout.support[class_index]  # (U, B, W); padding points one past the last row
            if counts.ndim == 3:
                tokens = probs.new_zeros(*class_index.shape, probs.shape[1] + 1).scatter_(2, rows, counts)[..., :-1]
            else:
                rows = rows.clamp(max=probs.shape[1] - 1)[:, :, None].expand_as(counts)  # padding adds nothing
                buckets = probs.new_zeros(*counts.shape[:3], probs.shape[1]).scatter_add_(3, rows, counts)
                tokens = buckets.sum(2)
        own = self._of_run
        return Batch(class_index[own], tokens[own], weights[own], None if buckets is None else buckets[own])


@dataclass(frozen=True)
class Gradients:
    """The gradient of J, and the loss and accuracy that come with it."""

    decoder: Tensor  # (R, H D, C), of the groups: each of a group's mu nu entries moves by 1/(mu nu) of it
    attention_logits: Tensor  # (R, Q H, S)
    loss: Tensor  # (R,) -J
    accuracy: Tensor  # (R,) share of the batch whose next token alone has the largest logit
    position_bias: Tensor | None = None  # (R, 1, G), where there is one


def gradients(
    layout: LayoutTensors,
    decoder: Tensor,
    attention_logits: Tensor,
    batch: Batch,
    *,
    modified: bool = False,
    bias: Tensor | None = None,
    balanced: bool = False,
) -> Gradients:
    """Lemma 1 for y (R, H D, C) and z (R, Q H, S); Lemma 3's decoder gradient if `modified`.

    `bias` (R, 1, G) is added to z by bucket of positions (`start.py`), for batches that have them.  The dz of a
    sequence under the softmax sums to zero; if `balanced`, what rounding leaves of the sum is taken out, which a stiff
    flow would add up (`yz_flow.py`).
    """
    counts = token_weights(batch, bias)
    direction = directions(layout, attention_logits, batch, counts)
    weighed = layout.readout.rows.weigh(direction.value).flatten(2)  # (R, B, H D)
    logits = weighed @ decoder  # (R, B, C)
    residual, loss, correct = residual_of(layout, logits, layout.next_column[batch.class_index])
    residual = residual * batch.sample_weights[..., None]

    g = (residual @ decoder.mT).unflatten(2, direction.value.shape[2:])  # (R, B, H, D)
    dz, dlog_a = direction.backward(g)  # (R, B, H, S)
    if balanced and layout.readout.is_softmax:
        dz = dz - dz.sum(-1, keepdim=True) * (2 * (direction.z + direction.log_a)).softmax(-1)  # as f_l^2
    if modified:
        modification = _modification(layout, attention_logits, bias)
        every = torch.arange(len(weighed), device=weighed.device)[:, None]
        weighed = weighed + modification[every, batch.class_index]
    return Gradients(
        decoder=weighed.mT @ residual,
        attention_logits=(layout.query_one_hot[batch.class_index].mT @ dz.flatten(2)).reshape(attention_logits.shape),
        loss=(loss * batch.sample_weights).sum(1),
        accuracy=(correct * batch.sample_weights).sum(1),
        position_bias=None
        if bias is None or batch.buckets is None
        else bias_gradient(batch.buckets, bias, counts, dlog_a.sum(2)),
    )


def measures(
    layout: LayoutTensors, decoder: Tensor, attention_logits: Tensor, batch: Batch, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Loss and accuracy (R,) alone."""
    value = directions(layout, attention_logits, batch, token_weights(batch, bias)).value
    logits = layout.readout.rows.weigh(value).flatten(2) @ decoder
    _, loss, correct = residual_of(layout, logits, layout.next_column[batch.class_index])
    return (loss * batch.sample_weights).sum(1), (correct * batch.sample_weights).sum(1)


def token_weights(batch: Batch, bias: Tensor | None = None) -> Tensor:
    """a (R, B, S), including the position bias if there is one."""
    return batch.token_weights if bias is None or batch.buckets is None else biased_counts(batch.buckets, bias)


def directions(layout: LayoutTensors, attention_logits: Tensor, batch: Batch, counts: Tensor) -> Directions:
    """v (R, B, H, D) of every sequence, from z and its counts a."""
    rows = (
        layout.attention_row[batch.class_index].flatten(1)[..., None].expand(-1, -1, attention_logits.shape[2])
    )  # (R, B H, S)
    z = attention_logits.gather(1, rows).unflatten(1, (batch.class_index.shape[1], -1))  # (R, B, H, S)
    return layout.readout.forward(z, torch.log(counts)[:, :, None], batch.class_index)


def residual_of(layout: LayoutTensors, logits: Tensor, next_column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """e_n - p by groups of columns, the loss, and whether n alone has the largest logit."""
    residual, loss = softmax_residual(logits + layout.log_multiplicity, next_column)
    index = next_column[..., None]
    is_own = torch.arange(logits.shape[2], device=logits.device) == index
    largest = logits.masked_fill(is_own, -torch.inf).amax(2, keepdim=True)
    return residual, loss, (logits.gather(2, index) > largest).to(logits.dtype).squeeze(2)


def check_independent(layout: LayoutTensors, attention_logits: Tensor, bias: Tensor | None) -> None:
    """Refuse Lemma 3's gradient if the directions of the classes depend on each other in every run."""
    v, weighed = _class_directions(layout, attention_logits, bias)
    if bool((torch.linalg.inv_ex(v @ weighed.mT).info != 0).all()):
        raise InputError(SINGULAR)


def _modification(layout: LayoutTensors, attention_logits: Tensor, bias: Tensor | None) -> Tensor:
    """-V E' e_n for every class (R, K, H D), entries of merged rows weighed."""
    v, weighed = _class_directions(layout, attention_logits, bias)
    inverse, singular = torch.linalg.inv_ex(v @ weighed.mT)
    # A run that is singular becomes NaN and so diverges; the others continue.
    inverse = inverse.masked_fill((singular != 0)[:, None, None], torch.nan)
    return inverse @ weighed - weighed


def _class_directions(layout: LayoutTensors, attention_logits: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows v_n (R, K, H D) for T -> infinity, and with entries of merged rows weighed."""
    batch = population_batch(layout, len(attention_logits))
    value = directions(layout, attention_logits, batch, token_weights(batch, bias)).value  # (R, K, H, D)
    return value.flatten(2), layout.readout.rows.weigh(value).flatten(2)


def biased_counts(buckets: Tensor, bias: Tensor) -> Tensor:
    """a (R, B, S) from the buckets' counts (R, B, G, S) and the bias (R, 1, G), up to a factor of each run."""
    return (buckets * _bucket_weights(bias)[:, None, :, None]).sum(2)


def bias_gradient(buckets: Tensor, bias: Tensor, counts: Tensor, dlog_a: Tensor) -> Tensor:
    """dJ/db (R, 1, G) from a and dJ/d ln a (R, B, S) of each sequence, summed over heads (`start.py`)."""
    per_count = torch.where(counts > 0, dlog_a / counts, 0.0)  # an absent token has no share and no gradient
    return (_bucket_weights(bias) * (buckets * per_count[:, :, None]).sum((1, 3)))[:, None]


def _bucket_weights(bias: Tensor) -> Tensor:
    """exp(b) (R, G) without overflow: the largest is one."""
    return torch.exp(bias - bias.amax(2, keepdim=True))[:, 0]


class PopulationGradient:
    """The gradient at T -> infinity for states of a run, in float64."""

    def __init__(self, states: StateLayout, run: int, *, modified: bool = False) -> None:
        self._states, self._run, self._modified = states, run, modified
        self._layout = LayoutTensors.of(states.start.layout, dtype=torch.float64)

    def __call__(self, states: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """The gradient of J (n, N) at states (n, N), and whether it exists: Lemma 3's may not."""
        y, z, bias = self._tensors(states)
        batch = population_batch(self._layout, len(y))
        gradient = gradients(self._layout, y, z, batch, modified=self._modified, bias=bias, balanced=True)
        parts = [
            (self._layout.entry_rate * gradient.decoder).flatten(1),
            gradient.attention_logits.flatten(1)[:, self._states.entries],
        ]
        if self._states.learned and gradient.position_bias is not None:
            parts.append(gradient.position_bias[:, 0])
        slopes = torch.cat(parts, 1).detach().numpy()
        return slopes, ~np.isnan(slopes).any(1)

    def measures(self, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Loss and accuracy (n,)."""
        y, z, bias = self._tensors(states)
        loss, accuracy = measures(self._layout, y, z, population_batch(self._layout, len(y)), bias)
        return loss.numpy(), accuracy.numpy()

    def _tensors(self, states: FloatArray) -> tuple[Tensor, Tensor, Tensor | None]:
        """y (n, H D, C), z (n, Q H, S), and the bias (n, 1, G) or None where there are no positions."""
        y, z, bias = (torch.from_numpy(np.ascontiguousarray(part)) for part in self._states.split(self._run, states))
        return y, z, bias[:, None] if bias.shape[1] else None


@validated
def compare_gradients(
    classes: Data,
    *,
    seed: Seed = 0,
    scale: float = 1.0,
    **layer: str | bool | int | Normalization | AttentionMap | Addition,
) -> float:
    """The largest difference between dJ/dz in closed form and by autograd, relative to the largest entry.

    Both are computed at random logits, normal with standard deviation `scale`, for a random gradient of J by the
    direction that the decoder reads, over every class at T -> infinity, in float64.  A layer without a closed form is
    refused, since it uses autograd.

    >>> ss.compare_gradients("syn-small", normalization="layer") < 1e-12
    True
    """
    checked = from_names(Layer, layer)
    checked.check_own_parts()
    layout = CompactLayout.of(as_source(classes).classes, layer=checked)
    tensors = LayoutTensors.of(layout, dtype=torch.float64)
    if not tensors.readout.has_closed_form:
        raise InputError(
            "this layer has no gradient in closed form: its parts give forward maps, and autograd is used."
        )
    generator = torch.Generator().manual_seed(seed)
    batch = population_batch(tensors, 1)
    shape = (1, len(layout.size), layout.layer.heads, layout.num_rows)
    z = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    log_a = torch.log(batch.token_weights)[:, :, None]
    ways = [tensors.readout.forward(z, log_a, batch.class_index, autograd=autograd) for autograd in (False, True)]
    g = torch.randn(ways[0].value.shape, generator=generator, dtype=torch.float64)
    closed, by_autograd = (way.backward(g)[0] for way in ways)
    return float((closed - by_autograd).abs().max() / by_autograd.abs().max())
