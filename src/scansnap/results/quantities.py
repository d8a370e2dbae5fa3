"""Recorded quantities, each with its dimensions and its computation.

The built-in quantities are defined the same way as a user's own:

    @quantity("layer", "head", "class", needs="attention", long_name="tokens attended to", units="1")
    def effective_tokens(now):
        return 1 / (now.attention**2).sum(-1)

    train(classes, ..., record=("loss", effective_tokens))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.results.metrics import entropy as entropy_of
from scansnap.results.snapshot import Need, Snapshot
from scansnap.runtime.errors import InputError, ScanSnapError, short_repr, unknown
from scansnap.validation.argument_types import ArgumentType, EitherType, SequenceType
from scansnap.validation.checks import is_iterable
from scansnap.validation.registry import Registry
from scansnap.validation.user_code import code_digest, describe_error, is_own
from scansnap.validation.validate import validated

LABELED = ("layer", "head", "class", "query", "token", "output", "bucket")
"""Dimensions that every result has coordinates for."""


@validated
@dataclass(frozen=True)
class Quantity:
    """A variable of a result; its dimensions come after `run` and `step` or `time`.

    >>> ss.QUANTITIES.member("entropy").dims
    ('layer', 'head', 'class')
    """

    name: str
    dims: tuple[str, ...]
    compute: Callable[[Snapshot], ArrayLike]  # (R, *dims)
    needs: Annotated[
        tuple[Need, ...], SequenceType(ArgumentType())
    ]  # the attributes of the snapshot that `compute` reads
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)  # long_name and units
    coords: Mapping[str, Sequence[float] | Sequence[str]] = field(
        default_factory=dict, hash=False
    )  # values of the quantity's own dimensions
    full_precision: bool = False  # kept in float64 whatever the arithmetic of the run

    def __post_init__(self) -> None:
        object.__setattr__(self, "__wrapped__", self.compute)  # where Python looks for the function it is made of
        if not self.name.isidentifier():
            raise InputError(f"a quantity is called '{self.name}': give it a name of letters, digits and underscores.")
        if len(set(self.dims)) < len(self.dims):
            raise InputError(f"the quantity {self.name} has a dimension twice: give each of its dimensions once.")
        if not all(isinstance(values, Sequence | np.ndarray) for values in self.coords.values()):
            raise InputError(f"{self.name} has the coords {short_repr(dict(self.coords))}: give a list for each.")
        for need in self.needs:
            if need not in get_args(Need):
                raise unknown(f"need of the quantity {self.name}", need, get_args(Need))
        for dim in self.dims:
            if dim not in LABELED and dim not in self.coords:
                raise InputError(
                    f"the quantity {self.name} has the dimension '{dim}', which results do not have: use "
                    f"{', '.join(LABELED)}, or give the values of your own dimension in coords."
                )

    def values(self, snapshot: Snapshot, shape: tuple[int, ...]) -> NDArray[np.generic]:
        """The quantity (R, *dims), checked to have the shape of its dimensions."""
        try:
            values = np.asarray(self.compute(snapshot))
        except ScanSnapError:
            raise
        except Exception as error:
            file = getattr(getattr(self.compute, "__code__", None), "co_filename", "")
            raise InputError(f"the quantity {self.name} fails with {describe_error(error, file)}.") from error
        if values.dtype.kind not in "biuf":
            raise InputError(f"the quantity {self.name} gives {values.dtype.name} values: give real numbers.")
        if values.shape != shape:
            raise InputError(
                f"the quantity {self.name} has shape {values.shape} for {shape[0]} runs, but its dimensions "
                f"{', '.join(self.dims) or '(none)'} have {shape}."
            )
        return values


QUANTITIES: Registry[Quantity] = Registry("variable to record")
"""What a run can record, by name: `record=`.

>>> "entropy" in ss.QUANTITIES
True
"""


@validated
def quantity(
    *dims: str,
    needs: Annotated[Need | Sequence[Need], EitherType((ArgumentType(), SequenceType(ArgumentType())))],
    long_name: str = "",
    units: str = "1",
    coords: Mapping[str, Sequence[float] | Sequence[str]] | None = None,
    full_precision: bool = False,
) -> Callable[[Callable[[Snapshot], ArrayLike]], Quantity]:
    """A decorator that turns a function of a `Snapshot` into a quantity with the function's name.

    Parameters
    ----------
    dims : str
        Its axes after the run: among layer, head, class, query, token, output, bucket, or your own.
    needs : str or sequence
        The attributes of the snapshot that the function reads.
    long_name, units : str
        What it is and in what unit; both are attributes of the result.
    coords : mapping, optional
        The values of dimensions of your own.
    full_precision : bool
        Keep it in float64 even if the run computes in float32.

    Examples
    --------
    >>> @ss.quantity("layer", "head", "class", needs="attention", long_name="largest share")
    ... def largest(now: ss.Snapshot):
    ...     return now.attention.max(-1)
    >>> list(ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5, record=("loss", largest)).data_vars)
    ['loss', 'largest']
    """

    def make(compute: Callable[[Snapshot], ArrayLike]) -> Quantity:
        return Quantity(
            name=compute.__name__,
            dims=dims,
            compute=compute,
            needs=(needs,) if isinstance(needs, str) else tuple(needs),
            attributes={"long_name": long_name or compute.__name__.replace("_", " "), "units": units},
            coords=coords or {},
            full_precision=full_precision,
        )

    return make


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


@dataclass(frozen=True)
class RecordType(ArgumentType):
    """Values of the option `record`: names of quantities, or `Quantity` objects."""

    def check(self, name: str, value: Any) -> tuple[str | Quantity, ...]:
        """The names in their usual order, then the user's own."""
        asked = (
            [value]
            if isinstance(value, str | Quantity)
            else list(value)
            if isinstance(value, Sequence) and is_iterable(value)
            else []
        )
        if not asked:
            raise InputError(
                f"{name} is {short_repr(value)}: give quantities to record, among {', '.join(QUANTITIES)}."
            )
        for wanted in asked:
            if not isinstance(wanted, str | Quantity):
                raise InputError(
                    f"{name} holds {short_repr(wanted)}: give names among {', '.join(QUANTITIES)}, or Quantity objects."
                )
        members = dict.fromkeys(QUANTITIES.member(wanted) for wanted in asked)
        names = [member.name for member in members]
        for member in members:
            namesake = QUANTITIES.member(member.name) if member.name in QUANTITIES else member
            if names.count(member.name) > 1 or namesake != member:
                raise InputError(f"two quantities are called '{member.name}': give yours another name.")
        listed: dict[Quantity, str] = {}
        for listed_name in QUANTITIES:
            listed.setdefault(QUANTITIES.member(listed_name), listed_name)
        return (*(listed[m] for m in listed if m in members), *(m for m in members if m not in listed))

    def read(self, name: str, text: str) -> list[str]:
        return [part.strip() for part in text.split(",")]

    def plain(self, value: tuple[str | Quantity, ...]) -> list[str]:
        return [member.name for member in quantities(value)]

    def code(self, value: tuple[str | Quantity, ...]) -> dict[str, str]:
        functions = {member.name: member.compute for member in quantities(value)}
        return {f"quantity {name}": code_digest(compute) for name, compute in functions.items() if is_own(compute)}


def quantities(record: Sequence[str | Quantity]) -> tuple[Quantity, ...]:
    """The quantities that an option `record` names."""
    return tuple(QUANTITIES.member(wanted) for wanted in record)
