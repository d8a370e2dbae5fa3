"""The quantities that (Y, Z) can record."""

from __future__ import annotations

from numpy.typing import ArrayLike

from scansnap.results.metrics import entropy as entropy_of
from scansnap.results.snapshot import Snapshot
from scansnap.systems.quantity import Need, Quantity, quantity
from scansnap.validation.registry import Registry

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

RECORDED = ("loss", "accuracy", "attention", "attention_logits", "entropy")
"""The quantities that are recorded by default."""
