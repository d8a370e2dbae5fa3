"""Which layer is trained: the paper's basic one, or one of the extensions it names (Sections 3 and 7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from scansnap.runtime.errors import InputError, short_repr
from scansnap.runtime.machine import needs_torch
from scansnap.systems.yz.attention import ATTENTION_MAPS, AttentionMap
from scansnap.systems.yz.normalization import NORMALIZATIONS, Normalization
from scansnap.validation.argument_types import ArgumentType, FlagType, MemberType
from scansnap.validation.options import Options, option
from scansnap.validation.registry import Registry
from scansnap.validation.user_code import is_own

if TYPE_CHECKING:
    from torch import Tensor


class Addition(Protocol):
    """What a layer adds to the attended tokens before it normalizes them again.

    >>> ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5, residual=True).sizes["step"]
    6
    """

    def forward(self, u: Tensor, query: Tensor) -> Tensor:
        """The sum, for u = LN(c) and the one-hot query e_m, both over tokens along the last axis."""


ADDITIONS: Registry[Addition] = Registry("residual", "forward")
"""What a layer adds before it normalizes again, by name: `residual=`.

>>> "query" in ss.ADDITIONS
True
"""


@ADDITIONS.register("query")
@dataclass(frozen=True)
class AddQuery:
    """u + e_m: Section 7's residual connection."""

    def forward(self, u: Tensor, query: Tensor) -> Tensor:
        return u + query


ADD_QUERY = AddQuery()


@dataclass(frozen=True)
class ResidualType(ArgumentType):
    """True, False, or an object that adds something other than the query, or its name."""

    def check(self, name: str, value: Any) -> Any:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        if isinstance(value, str) or callable(getattr(value, "forward", None)):
            ADDITIONS.member(value)
            return value
        raise InputError(f"{name} is {short_repr(value)}: give True or False, or an object with forward(...).")

    def read(self, name: str, text: str) -> bool | str:
        try:
            return text if text in ADDITIONS else FlagType().read(name, text)
        except InputError:
            raise InputError(f"{name} is '{text}': give yes, no, or one of {', '.join(ADDITIONS)}.") from None

    def plain(self, value: Any) -> Any:
        return value if isinstance(value, bool) else ADDITIONS.label(value)

    def code(self, value: Any) -> dict[str, str]:
        return {} if isinstance(value, bool) else ADDITIONS.code(value)


@dataclass(frozen=True, kw_only=True)
class Layer(Options):
    """The layer of (Y, Z)."""

    normalization: str | Normalization = field(
        default="l2",
        metadata=option(
            f"Normalization of the attended tokens: {', '.join(NORMALIZATIONS)} (standard LayerNorm, mean subtracted), "
            "or your own.",
            MemberType(NORMALIZATIONS),
        ),
    )
    residual: bool | str | Addition = field(
        default=False,
        metadata=option(
            "Whether to add the query to the attended tokens (Section 7): <yes, no|True, False>, or an addition of "
            "your own.",
            ResidualType(),
        ),
    )
    attention_map: str | AttentionMap = field(
        default="softmax",
        metadata=option(
            f"The map from logits to attention: {', '.join(ATTENTION_MAPS)}, or your own.",
            MemberType(ATTENTION_MAPS),
        ),
    )
    heads: int = field(
        default=1,
        metadata=option("Parallel heads, each with its own Y and Z; their logits add.", least=1, most=1024),
    )

    def check_own_parts(self) -> None:
        """Try the user's own parts on a small example."""
        if any(part is not None and is_own(part) for part in (self.map, self.normalizer, self.addition)):
            with needs_torch("a layer of your own"):
                from scansnap.systems.yz.own_parts import check_own_parts

            check_own_parts(self)

    @property
    def normalizer(self) -> Normalization:
        """LN."""
        return NORMALIZATIONS.member(self.normalization)

    @property
    def spreads(self) -> bool:
        """Whether LN gives an entry to tokens that do not occur."""
        return bool(getattr(self.normalizer, "spreads", False))

    @property
    def map(self) -> AttentionMap:
        """From logits to attention."""
        return ATTENTION_MAPS.member(self.attention_map)

    @property
    def addition(self) -> Addition | None:
        """What is added to LN(c); None without a residual connection."""
        if isinstance(self.residual, bool):
            return ADD_QUERY if self.residual else None
        return ADDITIONS.member(self.residual)


BASIC = Layer()
"""The layer of the paper's analysis."""
