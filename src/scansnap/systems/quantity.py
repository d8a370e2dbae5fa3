"""A quantity: something worth recording about a system, with its dimensions and its computation.

Built-in quantities and a user's own are made in the same way:

    @quantity("layer", "head", "class", needs="attention", long_name="tokens attended to", units="1")
    def effective_tokens(now):
        return 1 / (now.attention**2).sum(-1)

    train(classes, ..., record=("loss", effective_tokens))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.runtime.errors import InputError, ScanSnapError, short_repr, unknown
from scansnap.validation.argument_types import ArgumentType, EitherType, SequenceType
from scansnap.validation.checks import is_iterable
from scansnap.validation.user_code import Registry, code_digest, describe_error, is_own
from scansnap.validation.validate import validated

Now = TypeVar("Now")
"""A `Snapshot` or a `State`."""

Need = Literal[
    "loss",
    "accuracy",
    "fresh_loss",
    "fresh_accuracy",
    "attention",
    "attention_logits",
    "decoder",
    "query_decoder",
    "position_bias",
]
"""What a quantity of (Y, Z) may be computed from: attributes of `Snapshot`.  Other systems show their whole state."""


@validated
@dataclass(frozen=True)
class Quantity:
    """A variable of a result; its dimensions come after `run` and `step` or `time`.

    >>> ss.QUANTITIES.member("entropy").dims
    ('layer', 'head', 'class')
    """

    name: str  # of the variable in a result
    dims: tuple[str, ...]  # its axes after the run and the record
    compute: Callable[..., ArrayLike]  # (R, *dims), of a `Snapshot` or, for other systems than (Y, Z), a `State`
    needs: Annotated[tuple[Need, ...], SequenceType(ArgumentType())] = ()  # attributes of the snapshot that it reads
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

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Its shape in one run at one record, given the size of every dimension that the result has."""
        for dim in self.dims:
            if dim not in sizes and dim not in self.coords:
                raise InputError(
                    f"the quantity {self.name} has the dimension '{dim}', which results do not have: use "
                    f"{', '.join(sizes)}, or give the values of your own dimension in coords."
                )
        return tuple(len(self.coords[dim]) if dim in self.coords else sizes[dim] for dim in self.dims)

    def values(self, snapshot: object, shape: tuple[int, ...]) -> NDArray[np.generic]:
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


@validated
def quantity(
    *dims: str,
    needs: Annotated[Need | Sequence[Need], EitherType((ArgumentType(), SequenceType(ArgumentType())))] = (),
    long_name: str = "",
    units: str = "1",
    coords: Mapping[str, Sequence[float] | Sequence[str]] | None = None,
    full_precision: bool = False,
) -> Callable[[Callable[[Now], ArrayLike]], Quantity]:
    """A decorator that turns a function of a `Snapshot` or a `State` into a quantity with the function's name.

    Parameters
    ----------
    dims : str
        Its axes after the run: those of the system ((Y, Z) has layer, head, class, query, token, output, bucket), or
        your own.
    needs : str or sequence
        For (Y, Z): the attributes of the snapshot that the function reads.  A `State` has everything.
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

    def make(compute: Callable[[Now], ArrayLike]) -> Quantity:
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


@dataclass(frozen=True)
class RecordType(ArgumentType):
    """Values of the option `record`: names of quantities, or `Quantity` objects."""

    known: Registry[Quantity]

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
                f"{name} is {short_repr(value)}: give quantities to record, among {', '.join(self.known)}."
            )
        for wanted in asked:
            if not isinstance(wanted, str | Quantity):
                raise InputError(
                    f"{name} holds {short_repr(wanted)}: give names among {', '.join(self.known)}, or Quantity objects."
                )
        members = dict.fromkeys(self.members(asked))
        names = [member.name for member in members]
        for member in members:
            namesake = self.known.member(member.name) if member.name in self.known else member
            if names.count(member.name) > 1 or namesake != member:
                raise InputError(f"two quantities are called '{member.name}': give yours another name.")
        listed: dict[Quantity, str] = {}
        for listed_name in self.known:
            listed.setdefault(self.known.member(listed_name), listed_name)
        return (*(listed[m] for m in listed if m in members), *(m for m in members if m not in listed))

    def members(self, record: Sequence[str | Quantity]) -> tuple[Quantity, ...]:
        """The quantities that a value names."""
        return tuple(self.known.member(wanted) for wanted in record)

    def read(self, name: str, text: str) -> list[str]:
        return [part.strip() for part in text.split(",")]

    def plain(self, value: tuple[str | Quantity, ...]) -> list[str]:
        return [member.name for member in self.members(value)]

    def code(self, value: tuple[str | Quantity, ...]) -> dict[str, str]:
        functions = {member.name: member.compute for member in self.members(value)}
        return {f"quantity {name}": code_digest(compute) for name, compute in functions.items() if is_own(compute)}
