"""Which layer is trained: the paper's basic one, or one of the extensions it names (Sections 3 and 7).

Attention map
-------------
It takes the logits z of a sequence's query and ln a, where a_l is how often token l stands before the query (or P(l|n)
for long sequences), and gives the attention c.  Only its direction matters to the layer, which normalizes it.  The
built-in map is the softmax over positions, in terms of counts

    c = softmax(z + ln a)                                                                              (Eqs. 1, 5).

Normalization
-------------
LN is what a layer does to the attended tokens before the decoder reads them:

    l2       LN(x) = x / |x|_2                                    the paper's
    layer    LN(x) = (x - mean x) / |x - mean x|_2                standard LayerNorm

Both give unit length: LayerNorm's further factor sqrt(M) is a constant that belongs to Y and to its learning rate, and
without it the same rates mean the same thing.  The gradient back through LN, from g = dJ/dLN(x), is for either kind

    dJ/dx = (g - mean g - u (u . g)) / |x - mean x|_2                      (no means for the l2 kind),

Lemma 1's projection; for the centered kind it is the product of two projections, which commute because u sums to zero.

Vectors over all M tokens are stored by row (`compact.py`): a row that stands for nu tokens counts nu times in every sum
over tokens, which `TokenRows` takes.

A user's own map or normalization needs only `forward`, and a normalization `spreads` if that is not False: autograd
supplies the gradient (`dynamics/readout.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from scansnap.runtime.errors import InputError, short_repr
from scansnap.runtime.machine import needs_torch
from scansnap.validation.argument_types import ArgumentType, FlagType, MemberType
from scansnap.validation.options import Options, option, options
from scansnap.validation.user_code import Registry, is_own

if TYPE_CHECKING:
    from torch import Tensor


# --- attention ----------


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


# --- normalization ----------


@dataclass(frozen=True)
class TokenRows:
    """The rows along the last axis of a tensor, and how many tokens each stands for.

    >>> ss.TokenRows(num_tokens=34).num_tokens
    34
    """

    num_tokens: int  # M
    multiplicity: Tensor | None = None  # (D,) nu, where any row stands for more than one token

    def weigh(self, x: Tensor) -> Tensor:
        """nu x: each entry times the number of tokens behind it."""
        return x if self.multiplicity is None else x * self.multiplicity

    def mean(self, x: Tensor) -> Tensor:
        """The mean over all M tokens (.., 1)."""
        return self.weigh(x).sum(-1, keepdim=True) / self.num_tokens

    def length(self, x: Tensor) -> Tensor:
        """|x|_2 over all M tokens (.., 1)."""
        import torch

        if self.multiplicity is None:
            return torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (self.weigh(x) * x).sum(-1, keepdim=True).sqrt()

    def along(self, unit: Tensor, g: Tensor) -> Tensor:
        """u . g over all M tokens (.., 1)."""
        return (self.weigh(unit) * g).sum(-1, keepdim=True)


class Normalization(Protocol):
    """A map of vectors over tokens, along their last axis.

    >>> class Plain:
    ...     spreads = False
    ...     def forward(self, x, rows: ss.TokenRows):
    ...         return x
    >>> ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=5, normalization=Plain()).sizes["step"]
    6
    """

    @property
    def spreads(self) -> bool:
        """Whether tokens with a zero entry get a nonzero one, as they do when the mean is subtracted.

        All of them must get the same entry.
        """

    def forward(self, x: Tensor, rows: TokenRows) -> Tensor:
        """LN(x); sums over tokens are those of `rows`."""


@runtime_checkable
class ClosedFormNormalization(Protocol):
    """A normalization u = r/|r|_2 with r linear in x, and LN(s x) = LN(x) for s > 0: its gradient is a projection."""

    def unit(self, x: Tensor, rows: TokenRows) -> tuple[Tensor, Tensor]:
        """u and the length |r| that r was divided by."""

    def project(self, unit: Tensor, g: Tensor, rows: TokenRows) -> Tensor:
        """|r| dJ/dx from g = dJ/du."""


NORMALIZATIONS: Registry[Normalization] = Registry("normalization", "forward")
"""Normalizations of the attended tokens, by name: `normalization=`.

>>> "layer" in ss.NORMALIZATIONS
True
"""


@NORMALIZATIONS.register("l2")
@dataclass(frozen=True)
class L2Normalization:
    """x / |x|_2."""

    spreads = False

    def forward(self, x: Tensor, rows: TokenRows) -> Tensor:
        return self.unit(x, rows)[0]

    def unit(self, x: Tensor, rows: TokenRows) -> tuple[Tensor, Tensor]:
        length = rows.length(x)
        return x / length, length

    def project(self, unit: Tensor, g: Tensor, rows: TokenRows) -> Tensor:
        return g.addcmul(unit, rows.along(unit, g), value=-1)


@NORMALIZATIONS.register("layer")
@dataclass(frozen=True)
class LayerNormalization:
    """(x - mean x) / |x - mean x|_2."""

    spreads = True

    def forward(self, x: Tensor, rows: TokenRows) -> Tensor:
        return self.unit(x, rows)[0]

    def unit(self, x: Tensor, rows: TokenRows) -> tuple[Tensor, Tensor]:
        return L2Normalization().unit(x - rows.mean(x), rows)

    def project(self, unit: Tensor, g: Tensor, rows: TokenRows) -> Tensor:
        return L2Normalization().project(unit, g, rows) - rows.mean(g)


# --- residual connection ----------


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


# --- layer ----------


@options
class LayerOptions(Options):
    """The options of the layer of (Y, Z)."""

    normalization: str | Normalization = option(
        f"Normalization of the attended tokens: {', '.join(NORMALIZATIONS)} (standard LayerNorm, mean subtracted), "
        "or your own.",
        MemberType(NORMALIZATIONS),
        default="l2",
    )
    residual: bool | str | Addition = option(
        "Whether to add the query to the attended tokens (Section 7): <yes, no|True, False>, or an addition of "
        "your own.",
        ResidualType(),
        default=False,
    )
    attention_map: str | AttentionMap = option(
        f"The map from logits to attention: {', '.join(ATTENTION_MAPS)}, or your own.",
        MemberType(ATTENTION_MAPS),
        default="softmax",
    )
    heads: int = option("Parallel heads, each with its own Y and Z; their logits add.", default=1, least=1, most=1024)


@dataclass(frozen=True, kw_only=True)
class Layer(LayerOptions):
    """The layer of (Y, Z), with the parts that its options name."""

    def check_own_parts(self) -> None:
        """Try the user's own parts on a small example."""
        if any(part is not None and is_own(part) for part in (self.map, self.normalizer, self.addition)):
            with needs_torch("a layer of your own"):
                from scansnap.systems.yz.own_parts import check_own_parts

            check_own_parts(self)

    @cached_property
    def normalizer(self) -> Normalization:
        """LN."""
        return NORMALIZATIONS.member(self.normalization)

    @cached_property
    def spreads(self) -> bool:
        """Whether LN gives an entry to tokens that do not occur."""
        return bool(getattr(self.normalizer, "spreads", False))

    @cached_property
    def map(self) -> AttentionMap:
        """From logits to attention."""
        return ATTENTION_MAPS.member(self.attention_map)

    @cached_property
    def addition(self) -> Addition | None:
        """What is added to LN(c); None without a residual connection."""
        if isinstance(self.residual, bool):
            return ADD_QUERY if self.residual else None
        return ADDITIONS.member(self.residual)


BASIC = Layer()
"""The layer of the paper's analysis."""
