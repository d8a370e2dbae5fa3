"""What (Y, Z) can record: the snapshot of R runs at one record, and the quantities that are computed from it.

An engine gives the parts that the quantities need, in its own layout; arrays derived from them are computed once, on
first use.  L, H, K, Q, S, M and G are the numbers of layers, heads, classes, queries, contextual tokens, output
tokens and buckets of positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.runtime.errors import InputError
from scansnap.systems.quantity import Need, Quantity, quantity
from scansnap.systems.yz.compact import CompactLayout, attention_of_classes
from scansnap.validation.user_code import Registry

FloatArray = NDArray[np.floating]
Array = TypeVar("Array", bound=FloatArray)


def entropy_of(weights: ArrayLike) -> NDArray[np.float64]:
    """Entropy in nats of weights renormalized to sum to one along the last axis; NaN where they sum to zero."""
    w = np.ascontiguousarray(weights, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # 0/0
        p = w / w.sum(-1, keepdims=True)
    return np.asarray(-(p * np.log(p, out=np.zeros_like(p), where=p > 0)).sum(-1))


@dataclass(frozen=True)
class Parts:
    """What an engine shows of its state; parts that are not needed or do not exist are None."""

    attention_logits: FloatArray | None = None  # (R, Q H, S) z, with the prior in it
    decoder: FloatArray | None = None  # (R, H D, C) compact y
    position_bias: FloatArray | None = None  # (R, G)
    attention: NDArray[np.float64] | None = None  # (R, L, H, K, S), if it is not a function of z alone


class Snapshot:
    """The state of all runs at one record.

    >>> @ss.quantity("layer", "head", "class", needs="attention")
    ... def largest(now: ss.Snapshot):
    ...     return now.attention.max(-1)
    >>> largest.name
    'largest'
    """

    def __init__(
        self,
        layout: CompactLayout,
        parts: Parts,
        measures: Mapping[str, NDArray[np.float64]],
        prior: NDArray[np.float64] | None = None,
    ) -> None:
        self._layout = layout
        self._parts = parts
        self._measures = measures
        self._prior = np.zeros(()) if prior is None else prior

    @property
    def classes(self) -> SequenceClasses:
        """What the runs learn from."""
        return self._layout.classes

    @property
    def loss(self) -> NDArray[np.float64]:
        """(R,) cross-entropy of the batch that the next update uses."""
        return _known("loss", self._measures.get("loss"))

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(R,) the share of that batch whose next token has the largest logit."""
        return _known("accuracy", self._measures.get("accuracy"))

    @property
    def fresh_loss(self) -> NDArray[np.float64]:
        """(R,) cross-entropy on sequences that no update sees."""
        return _known("fresh_loss", self._measures.get("fresh_loss"))

    @property
    def fresh_accuracy(self) -> NDArray[np.float64]:
        """(R,) accuracy on sequences that no update sees."""
        return _known("fresh_accuracy", self._measures.get("fresh_accuracy"))

    @cached_property
    def attention(self) -> NDArray[np.float64]:
        """(R, L, H, K, S) c_n (Eq. 5) of every class, from the exact P(l|n)."""
        if self._parts.attention is not None:
            return _known("attention", self._parts.attention)
        return _known("attention", attention_of_classes(self._layout, self._logits, self._weighed_probs)[:, None])

    @property
    def attention_logits(self) -> FloatArray:
        """(R, 1, H, Q, S) Z at queries and contextual tokens, without the prior."""
        return (self._logits - self._prior)[:, None]

    @property
    def decoder(self) -> FloatArray:
        """(R, 1, H, S, M) the rows of Y of contextual tokens."""
        return self._layout.expand_decoder(_known("decoder", self._parts.decoder))[:, None]

    @property
    def query_decoder(self) -> FloatArray:
        """(R, 1, H, Q, M) the rows of Y of query tokens, which a residual connection reads."""
        return self._layout.expand_decoder(_known("decoder", self._parts.decoder), queries=True)[:, None]

    @property
    def position_bias(self) -> FloatArray:
        """(R, G) logits by bucket of positions."""
        return _known("position_bias", self._parts.position_bias)

    @property
    def is_distinct(self) -> NDArray[np.bool_]:
        """(S,) which contextual tokens only one class has."""
        return self.classes.kinds_of(self._layout.rows) == "distinct"

    @property
    def distinct_attention(self) -> NDArray[np.float64]:
        """(R, L, H, K, W) attention on the tokens of each class, 0 for those that are not distinct and for padding."""
        support = self._layout.support
        of_class = self.attention[..., np.arange(len(support))[:, None], support]
        return np.where(self.is_distinct[support] & (self._layout.support_probs > 0), of_class, 0.0)

    @property
    def _logits(self) -> FloatArray:
        """(R, H, Q, S) z, with the prior in it."""
        return self._layout.split_heads(_known("attention_logits", self._parts.attention_logits))

    @property
    def _weighed_probs(self) -> NDArray[np.float64] | None:
        """sum_g exp(b_g) sizes[g] P_g(l|n) (R, K, S), up to a factor, if there are positions."""
        bias = self._parts.position_bias
        if bias is None:
            return None
        weights = np.exp(bias.astype(np.float64) - bias.max(1, keepdims=True))
        return np.einsum("rg,kgs->rks", weights, self.classes.bucket_probs)


def _known(name: str, part: Array | None) -> Array:
    """The part, which other quantities read too: a view that cannot be written to."""
    if part is None:
        raise InputError(f"a quantity reads {name}, which is not available: name it in the quantity's needs.")
    view = part.view()
    view.flags.writeable = False
    return view


# --- quantities -------------------------------------------------------------------------------------------------------


QUANTITIES: Registry[Quantity] = Registry("variable to record")
"""What a run can record, by name: `record=`.

>>> "entropy" in ss.QUANTITIES
True
"""


def _shown(name: Need, *dims: str, long_name: str, units: str = "1", full_precision: bool = False) -> None:
    """List an attribute of the snapshot under its own name."""
    attributes = {"long_name": long_name, "units": units}
    QUANTITIES.register(name)(
        Quantity(name, dims, lambda now: getattr(now, name), (name,), attributes, full_precision=full_precision)
    )


_shown("loss", long_name="cross-entropy", units="nats", full_precision=True)
_shown("accuracy", long_name="share of sequences whose next token has the largest logit", full_precision=True)
_shown("fresh_loss", long_name="cross-entropy on sequences that no update sees", units="nats", full_precision=True)
_shown("fresh_accuracy", long_name="accuracy on sequences that no update sees", full_precision=True)
_shown("attention", "layer", "head", "class", "token", long_name="attention c_n (Eq. 5)")
_shown("attention_logits", "layer", "head", "query", "token", long_name="attention logits Z")


@QUANTITIES.register("entropy")
@quantity(
    "layer", "head", "class", needs="attention", long_name="entropy of attention on distinct tokens", units="nats"
)
def entropy(now: Snapshot) -> ArrayLike:
    """The entropy of attention restricted to a class's distinct tokens and renormalized there."""
    return entropy_of(now.distinct_attention)


_shown("decoder", "layer", "head", "token", "output", long_name="decoder Y, rows of contextual tokens")
_shown(
    "query_decoder",
    "layer",
    "head",
    "query",
    "output",
    long_name="decoder Y, rows of query tokens (residual connection)",
)
_shown("position_bias", "bucket", long_name="bias on attention logits by bucket of positions")

DEFAULT_QUANTITIES = ("loss", "accuracy", "attention", "attention_logits", "entropy")
"""The quantities that are recorded by default."""
