"""An additive bias on attention logits by relative position (Section 7), fixed or learned.

With b_g the bias of bucket g and a_gl how often token l is in it, the positions of a sequence of query m weigh

    a_l exp(z_ml) = sum_g a_gl exp(z_ml + b_g),      a_l = sum_g exp(b_g) a_gl,

so that attention is the softmax of z + ln a as before, with biased counts, or for T -> infinity sizes times P_g(l|n),
in the place of counts.  The gradient sees z_ml and ln a_l through their sum alone: dJ/d ln a_l = dz_l of the sequence,
and

    dJ/db_g = sum_l dz_l s_gl,      s_gl = exp(b_g) a_gl / a_l,

the part of token l that comes from bucket g.  A bias that is the same in all buckets cancels, and so does any bias if
tokens do not depend on their position and sequences are long: then a_l is in proportion to P(l|n) whatever b is.  If
they do, a fixed bias is a prior on contextual tokens: it is training on other classes, sum_g w_g P_g(l|n) with w_g in
proportion to sizes[g] exp(b_g).

The bias is one vector for all queries and heads; learned, it moves at the rate eta_Z of the logits that it is added to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.base.errors import InputError
from scansnap.data.position_sampling import bucket_of, check_length, draw_positions, position_thresholds
from scansnap.data.positioned_classes import PositionedClasses
from scansnap.data.sequence_classes import SequenceClasses


@dataclass(frozen=True)
class Positions:
    """Buckets, their distributions over the contextual tokens, and their bias at the start."""

    classes: PositionedClasses
    probs: NDArray[np.float64]  # (K, G, S) sizes[g] P_g(l|n) / (T-1)
    bias: NDArray[np.float64]  # (G,)
    learned: bool

    @classmethod
    def checked(cls, classes: SequenceClasses, position_bias: Any, learn_position_bias: Any) -> Positions | None:
        """The positions of the classes; None where they have none, which takes no bias."""
        if not isinstance(learn_position_bias, bool | np.bool_):
            raise InputError(f"learn_position_bias is {learn_position_bias!r}: give True or False.")
        if not isinstance(classes, PositionedClasses):
            if position_bias is not None or learn_position_bias:
                name = "learn_position_bias" if position_bias is None else "position_bias"
                raise InputError(
                    f"{name} is given but tokens of these classes do not depend on their position: make "
                    "PositionedClasses, such as near_distinct(), or give positions in the classes file."
                )
            return None
        tokens = classes.contextual_tokens
        probs = np.zeros((classes.num_classes, classes.num_buckets, len(tokens)))
        share = classes.sizes / classes.sizes.sum()
        for n in range(classes.num_classes):
            entries = slice(classes.offsets[n], classes.offsets[n + 1])
            columns = np.searchsorted(tokens, classes.support(n))
            probs[n][:, columns] = share[:, None] * classes.part_probs[entries].T
        return cls(classes, probs, _bias(classes, position_bias), bool(learn_position_bias))


def _bias(classes: PositionedClasses, given: Any) -> NDArray[np.float64]:
    """One number for each bucket: a vector, or ALiBi's slope times the distance."""
    if given is None:
        return np.zeros(classes.num_buckets)
    if isinstance(given, Mapping):
        slope = given.get("alibi")
        if set(given) != {"alibi"} or isinstance(slope, bool) or not isinstance(slope, int | float):
            raise InputError(
                f"position_bias is {dict(given)!r}: give one number for each bucket, or {{'alibi': slope}}."
            )
        if (classes.sizes > 1).any():
            raise InputError("ALiBi's bias differs from position to position: give buckets of one position each.")
        given = -float(slope) * np.arange(1, classes.num_buckets + 1)
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (classes.num_buckets,) or not np.isfinite(array).all():
        raise InputError(
            f"position_bias cannot be read: give {classes.num_buckets} finite numbers, one for each bucket of "
            "positions, or {'alibi': slope}."
        )
    return array


def described_bias(given: Any) -> Any:
    """The bias as plain data."""
    if given is None or isinstance(given, Mapping):
        return None if given is None else {str(key): float(value) for key, value in given.items()}
    return np.asarray(given, np.float64).tolist()


def biased_counts(buckets: Tensor, bias: Tensor) -> Tensor:
    """a (R, B, S) from the buckets' counts (R, B, G, S) and the bias (R, 1, G), up to a factor of each run."""
    return torch.einsum("rbgs,rg->rbs", buckets, _weights(bias))


def bias_gradient(buckets: Tensor, bias: Tensor, counts: Tensor, dz: Tensor) -> Tensor:
    """dJ/db (R, 1, G) from a and dz (R, B, S) of each sequence, summed over heads."""
    per_count = torch.where(counts > 0, dz / counts, 0.0)  # a token that is nowhere has no part, and no gradient
    return _weights(bias)[:, None] * torch.einsum("rbgs,rbs->rg", buckets, per_count)[:, None]


def _weights(bias: Tensor) -> Tensor:
    """exp(b) (R, G) without overflow: the largest is one."""
    return torch.exp(bias - bias.amax(2, keepdim=True))[:, 0]


class PositionDraws:
    """Sequences of positioned classes as counts by bucket, drawn on the CPU."""

    def __init__(self, classes: PositionedClasses, seeds: NDArray[np.uint64], batch: int) -> None:
        cumulative = np.cumsum(classes.weights)
        self._seeds = seeds
        self._bucket = bucket_of(classes)
        self._size = np.diff(classes.offsets)
        self._thresholds = position_thresholds(classes)
        self._class_thresholds = cumulative / cumulative[-1]
        self._class_index = np.empty((len(seeds), batch), np.int64)
        self._places = np.empty((len(seeds), batch, len(self._bucket)), np.int64)

    def draw(self, step: int, support: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Classes (R, B) and counts (R, B, G, S); `support` (K, W) has the rows of each class's tokens."""
        draw_positions(
            self._seeds, step, self._bucket, self._size, self._thresholds, self._class_thresholds, self._class_index,
            self._places,
        )  # fmt: skip
        class_index = torch.tensor(self._class_index, device=like.device)
        places = torch.tensor(self._places, device=like.device)
        rows = support[class_index].gather(2, places)  # (R, B, T-1)
        bucket = torch.tensor(self._bucket, device=like.device)
        num_rows, num_buckets = like.shape[-1], int(self._bucket[-1]) + 1
        counts = like.new_zeros(*class_index.shape, num_buckets * num_rows)
        counts.scatter_add_(2, bucket * num_rows + rows, torch.ones_like(rows, dtype=like.dtype))
        return class_index, counts.unflatten(2, (num_buckets, num_rows))


def check_positions(
    positions: Positions | None, seq_len: float, batch_size: int | None, num_sequences: int | None
) -> None:
    """Refuse what cannot be combined with positions."""
    if positions is None:
        return
    check_length(positions.classes, seq_len)
    if num_sequences is not None:
        raise InputError(
            "num_sequences is given but tokens depend on their position: fixed sets are for other classes."
        )
    if batch_size is None and seq_len != np.inf:
        raise InputError(
            "batch_size is None and tokens depend on their position: give a batch size, or seq_len=math.inf."
        )
