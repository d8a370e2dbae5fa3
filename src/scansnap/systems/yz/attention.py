"""From attention logits to attention: the map of a layer, and the c_n (Eq. 5) that users see.

A map takes the logits z of a sequence's query and ln a, where a_l is how often token l stands before the query (or
P(l|n) for long sequences), and gives the attention c.  Only its direction matters to the layer, which normalizes it.
The built-in map is the softmax over positions, in terms of counts

    c = softmax(z + ln a)                                                                              (Eqs. 1, 5).

A user's own map needs only `forward`: without `backward`, autograd supplies the gradient (`dynamics/readout.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scansnap.validation.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from scansnap.systems.yz.compact import CompactLayout


class AttentionMap(Protocol):
    """A map from logits to attention, along the last axis.

    >>> import torch
    >>> class Sigmoid:
    ...     def forward(self, z, log_a):
    ...         return torch.sigmoid(z) * log_a.exp()
    >>> ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5, attention_map=Sigmoid()).sizes["step"]
    6
    """

    def forward(self, z: Tensor, log_a: Tensor) -> Tensor:
        """c >= 0 for logits z and ln a, which is -inf where a token is absent: there c must be zero."""


@runtime_checkable
class ClosedFormMap(Protocol):
    """A map whose gradient is written out."""

    def backward(self, z: Tensor, log_a: Tensor, c: Tensor, dc: Tensor) -> tuple[Tensor, Tensor]:
        """dJ/dz and dJ/d ln a from c = forward(z, ln a) and dc = dJ/dc."""


ATTENTION_MAPS: Registry[AttentionMap] = Registry("attention_map", "forward")
"""Maps from logits to attention, by name: `attention_map=`.

>>> "softmax" in ss.ATTENTION_MAPS
True
"""


@ATTENTION_MAPS.register("softmax")
@dataclass(frozen=True)
class Softmax:
    """c_l = a_l exp(z_l) / sum_l' a_l' exp(z_l'), whatever the size of the logits."""

    def forward(self, z: Tensor, log_a: Tensor) -> Tensor:
        return (z + log_a).softmax(-1)


SOFTMAX = Softmax()


def attention_of_classes(
    layout: CompactLayout, logits: NDArray[np.floating], probs: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """c_n (Eq. 5) of every class (..., H, K, S) from the exact P(l|n) and learned logits z (..., H, Q, S).

    `probs` (..., K, S) replaces P(l|n) if positions weigh tokens; only ratios matter.
    """
    per_head = None if probs is None else probs[..., None, :, :]
    attention_map = layout.layer.map
    if attention_map == SOFTMAX:
        return _softmax_of_classes(layout, logits, per_head)
    return _mapped(layout, attention_map, logits, per_head)


def _softmax_of_classes(
    layout: CompactLayout, logits: NDArray[np.floating], probs: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    z = logits.astype(np.float64)[..., layout.query_index[:, None], layout.support]  # (..., K, W)
    # Row-major, so that sums over tokens have the same order for any number of runs.
    z = np.ascontiguousarray(np.where(layout.support_probs > 0, z, -np.inf))
    with np.errstate(invalid="ignore"):  # a diverged run's logits are not finite, and neither is its attention
        weights = np.exp(z - z.max(-1, keepdims=True))
        weights = weights * (layout.support_probs if probs is None else _on_support(layout, probs))
        weights /= weights.sum(-1, keepdims=True)
    attention = np.zeros((*logits.shape[:-2], len(layout.size), layout.num_rows))
    for i, size in enumerate(layout.size):
        attention[..., i, layout.support[i, :size]] = weights[..., i, :size]
    return attention


def _on_support(layout: CompactLayout, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (..., K, S) at each class's own tokens (..., K, W), 0 for padding."""
    index = np.broadcast_to(layout.support.astype(np.int64), (*probs.shape[:-2], *layout.support.shape))
    return np.take_along_axis(probs, index, axis=-1) * (layout.support_probs > 0)


def _mapped(
    layout: CompactLayout,
    attention_map: AttentionMap,
    logits: NDArray[np.floating],
    probs: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """The same for any map, divided by its sum over tokens."""
    import torch

    weights = layout.dense_probs if probs is None else probs
    z = torch.from_numpy(logits.astype(np.float64)[..., layout.query_index, :])
    attention = attention_map.forward(z, torch.from_numpy(weights).log()).detach().numpy()
    return attention / attention.sum(-1, keepdims=True)
