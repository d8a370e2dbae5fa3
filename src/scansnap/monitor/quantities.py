"""What is recorded of each head, an open list; a user's own quantity is made the same way as these.

Row t of a head gives key s the weight p_ts; n_t keys are not hidden from it.  A quantity is a number for each row, and
its mean over windows and rows, or its maximum, is recorded.  It is NaN for rows that it does not cover: a row of one
key has no choice, so it does not count; the weight on the k largest keys counts rows of more than k keys.

    @head_quantity(long_name="attention on the token itself")
    def on_itself(rows):
        return rows.of_more_than(1, rows.on(rows.positions))

    ss.watch(model, probe=batch, record=("entropy", on_itself))

`qk_singular_value` is a number of the projections that make queries and keys, where a module shows them.  Head h has
q = W_Q x + b_Q and k = W_K y + b_K with matrices (d, D), so that <q, k> is x' W_QK y with W_QK = W_Q' W_K, up to the
biases.  Its largest singular value σ bounds the logits: |<q, k>| <= σ |x| |y|.  With rotary positions, or normalized
queries and keys, the logits depend on more than W_QK; σ is then still that of the projections.

Some quantities ask where most of a head's attention lies: on which key relative to the row, at which place of the
window, on which token, or like which other head.  Their functions return a `Profile` of all candidates, of which the
largest mean is recorded ("peak"), or which one it is ("place").  A candidate counts if at least half of the rows that
any candidate has could attend to it: at the end of a causal window few rows could.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from scansnap.monitor.attention import exact_products, precise
from scansnap.monitor.projections import Projections
from scansnap.runtime.errors import InputError, brief, short_repr
from scansnap.validation.user_code import Registry
from scansnap.validation.validate import validated

Reduction = Literal["mean", "max", "peak", "place"]
Sample = Literal["probe", "followed", "repeated", "projections", "gradients"]

MAX_OFFSET = 16
"""The largest distance, in tokens before or after a row, at which a head's attention is looked for."""

FAR_DISTANCE = 1000
"""Attention that lies farther back than this many tokens is far."""


class Profile(NamedTuple):
    """How much attention lies on each of n candidates, summed over rows."""

    totals: Tensor  # (B, H, n)
    counts: Tensor  # (B, H, n): rows that could attend to it
    labels: Tensor  # (n,): what the candidates are


@dataclass(frozen=True)
class Rows:
    """Attention of some rows of one layer: B windows, H heads, r rows, S keys.

    >>> @ss.head_quantity(long_name="attention on the token itself")
    ... def on_itself(rows: ss.Rows):
    ...     return rows.of_more_than(1, rows.on(rows.positions))
    """

    weights: Tensor  # (B, H, r, S); NaN where all keys are hidden; with a learned sink they sum to less than 1
    logits: Tensor  # (B, H, r, S), -inf where a key is hidden
    keys: Tensor  # (B, H, r): the number of keys that are not hidden; 0 for padding, which does not count
    positions: Tensor  # (B, r): which tokens the rows are
    first: Tensor  # (B, r): the first token of the row's document that is not padding
    is_self: bool  # whether keys and queries are the same tokens
    has_sink: bool = False  # whether there is a learned sink, which takes what the weights lack to 1
    before: Tensor | None = None  # the weights at the snapshot before
    tokens: Tensor | None = None  # (B, S): token ids, where keys are tokens with known ids
    vocabulary: Tensor | None = None  # (n,): all ids of tokens in the probe, in ascending order
    query: Tensor | None = None  # (B, H, r, d), where the quantity asked for vectors and the attention shows them
    key: Tensor | None = None  # (B, H or fewer, S, d)
    value: Tensor | None = None  # (B, H or fewer, S, e)
    hidden: Tensor | None = None  # (B, T, D): what the attending module was given
    scale: float = 1.0  # of the products of queries and keys

    @cached_property
    def shares(self) -> Tensor:
        """The weights relative to what lies on keys (B, H, r, S): they sum to 1."""
        if not self.has_sink:
            return self.weights
        return self.weights / self.weights.sum(-1, keepdim=True).clamp(min=torch.finfo(self.weights.dtype).tiny)

    @cached_property
    def entropy(self) -> Tensor:
        """-Σ_s p_ts ln p_ts of each row (B, H, r), of what lies on keys."""
        return torch.special.entr(self.shares).sum(-1)

    def of_more_than(self, count: int, values: Tensor) -> Tensor:
        """The values of rows with more than `count` keys, NaN for the others."""
        return values.masked_fill(self.keys <= count, math.nan)

    def part(self, windows: slice, rows: slice = slice(None)) -> Rows:
        """Some rows of some windows."""
        of_heads, of_rows = (windows, slice(None), rows), (windows, rows)
        axes: dict[str, tuple[slice, ...]] = dict.fromkeys(("weights", "logits", "keys", "query"), of_heads)
        axes |= dict.fromkeys(("positions", "first"), of_rows)
        axes |= dict.fromkeys(("tokens", "key", "value", "hidden"), (windows,))
        tensors = {name: getattr(self, name) for name in axes}
        return replace(self, **{name: t[axes[name]] for name, t in tensors.items() if t is not None})

    def on(self, keys: Tensor) -> Tensor:
        """The weight on one key of each row; `keys` (B, r)."""
        return self.weights.take_along_dim(keys[:, None, :, None], 3)[..., 0]

    @cached_property
    def by_offset(self) -> Profile:
        """Attention by how many tokens before the row a key is; negative after it."""
        offsets = torch.arange(-MAX_OFFSET, MAX_OFFSET + 1, device=self.positions.device)
        keys = self.positions[:, :, None] - offsets  # (B, r, n)
        length = self.weights.shape[-1]
        does_count = ((keys >= 0) & (keys < length))[:, None] & (self.keys > 1)[..., None] & self.is_self
        weights = self.weights.take_along_dim(keys.clamp(0, length - 1)[:, None], 3)
        return Profile(torch.where(does_count, weights, 0.0).sum(2), does_count.sum(2), offsets)

    @cached_property
    def by_position(self) -> Profile:
        """Attention by the place of a key in its window."""
        does_count = (self.keys > 1)[..., None]
        totals = torch.where(does_count, self.weights, 0.0).sum(2)
        counts = ((self.logits != -math.inf) & does_count).sum(2)
        return Profile(totals, counts, torch.arange(totals.shape[-1], device=totals.device))

    @cached_property
    def by_token(self) -> Profile:
        """Attention by the token that a key is."""
        totals, number = self.by_position.totals, (self.keys > 1).sum(2)[..., None]
        if self.tokens is None or self.vocabulary is None:
            nothing = totals[..., :0]
            return Profile(nothing, nothing, nothing[0, 0])
        tokens = self.tokens.to(self.vocabulary.dtype).contiguous()
        index = torch.searchsorted(self.vocabulary, tokens)[:, None].expand_as(totals)
        summed = totals.new_zeros(*totals.shape[:2], len(self.vocabulary)).scatter_add(2, index, totals)
        return Profile(summed, number.expand_as(summed), self.vocabulary)

    @cached_property
    def by_head(self) -> Profile:
        """How alike the attention of two heads is: the cosine of the angle between their rows."""
        lengths = torch.linalg.vector_norm(self.weights, dim=-1, keepdim=True)
        directions = torch.where((self.keys > 1)[..., None], self.weights / lengths, 0.0)
        with exact_products():
            totals = torch.einsum("bhts,bgts->bhg", directions, directions)
        heads = totals.shape[1]
        is_other = ~torch.eye(heads, dtype=torch.bool, device=totals.device)
        counts = (self.keys > 1).sum(2)[..., None] * is_other
        return Profile(totals * is_other, counts, torch.arange(heads, device=totals.device))

    @cached_property
    def value_norms(self) -> Tensor | None:
        """The norm of each key's value (B, H, S), relative to their mean in the window."""
        if self.value is None:
            return None
        norms = torch.linalg.vector_norm(precise(self.value), dim=-1)
        norms = norms.repeat_interleave(self.weights.shape[1] // norms.shape[1], 1)
        return norms / norms.mean(-1, keepdim=True).clamp(min=torch.finfo(norms.dtype).tiny)

    @cached_property
    def largest_pair(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Of the key with the largest logit of each row: the norms of query and key, and the cosine between them."""
        if self.query is None or self.key is None:
            return None
        query, key = precise(self.query), precise(self.key)
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        chosen = key.take_along_dim(self.logits.argmax(-1)[..., None], 2)  # (B, H, r, d)
        norms = torch.linalg.vector_norm(query, dim=-1), torch.linalg.vector_norm(chosen, dim=-1)
        tiny = torch.finfo(query.dtype).tiny
        return *norms, (query * chosen).sum(-1) / (norms[0] * norms[1]).clamp(min=tiny)

    def unknown(self) -> Tensor:
        """NaN for each row (B, H, r)."""
        return torch.full_like(self.weights[..., 0], math.nan)


class QuantityError(InputError):
    """A quantity whose function fails or returns something else than numbers."""

    def without_frames(self) -> QuantityError:
        """This error without its frames, which would keep the tensors of a snapshot; their lines stay as a note."""
        if self.__cause__ is not None:
            self.add_note("".join(traceback.format_exception(self.__cause__)))
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


SQUARINGS = 10
"""Squarings of M in the power iteration for its largest eigenvalue."""

RESERVED_NAMES = ("pattern", "finite", "loss", "learning_rate", "default")
"""Names of what every watch records."""


def lacks_memory(error: Exception) -> bool:
    """Whether something failed for lack of memory; each device and library has its own words for it."""
    message = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and ("out of memory" in message or "alloc" in message)
    )


@validated
@dataclass(frozen=True)
class HeadQuantity:
    """A number for each head at each snapshot.

    >>> ss.HEAD_QUANTITIES.member("entropy").units
    'nats'
    """

    name: str
    compute: Callable[..., Tensor | Profile]  # (B, H, r), NaN for rows that do not count; of `Projections`, (..., H)
    long_name: str
    units: str = "1"
    reduction: Reduction = "mean"
    sample: Sample = "probe"
    default: bool = False  # whether it is recorded without asking
    vectors: bool = False  # whether it reads queries, keys, values or what the module was given

    def __post_init__(self) -> None:
        object.__setattr__(self, "__wrapped__", self.compute)
        if not self.name.isidentifier():
            raise InputError(f"a quantity is called '{self.name}': give it a name of letters, digits and underscores.")
        if self.name in RESERVED_NAMES:
            raise InputError(f"a quantity is called '{self.name}', as what every watch records: give it another name.")
        if self.sample in ("projections", "gradients") and self.reduction in ("peak", "place"):
            raise InputError(
                f"the quantity '{self.name}' is of {self.sample}, which have no rows: give reduction='mean'."
            )

    def of(self, measured: object, shape: Sequence[int]) -> Tensor | Profile:
        """The values of the function on rows or projections; a function that fails is named."""
        try:
            values = self.compute(measured)
        except Exception as error:
            if lacks_memory(error):
                raise  # memory may suffice for fewer windows
            raise QuantityError(
                f"the quantity '{self.name}' fails ({type(error).__name__}: {brief(error)}): mend its function."
            ) from error
        if self.reduction in ("peak", "place"):
            if not isinstance(values, Profile):
                raise QuantityError(f"the quantity '{self.name}' gives {short_repr(values)}: return a Profile.")
        elif not isinstance(values, Tensor) or values.shape != torch.Size(shape):
            what = f"a tensor of {_shape(values.shape)}" if isinstance(values, Tensor) else short_repr(values)
            raise QuantityError(
                f"the quantity '{self.name}' gives {what}: return a number for each window, head and row, here "
                f"{_shape(shape)}."
            )
        return values


HEAD_QUANTITIES: Registry[HeadQuantity] = Registry("quantity of attention")
"""What a watch can record of a head, by name: `record=`.

>>> "entropy" in ss.HEAD_QUANTITIES
True
"""


@validated
def head_quantity(
    *,
    long_name: str,
    units: str = "1",
    reduction: Reduction = "mean",
    sample: Sample = "probe",
    default: bool = False,
    vectors: bool = False,
) -> Callable[[Callable[..., Tensor | Profile]], HeadQuantity]:
    """A decorator that turns a function of `Rows` into a quantity with the function's name.

    The function returns a number for each row (B, H, r), NaN for those that do not count.  `sample` chooses the rows
    that it is given: those of the probe; those that are followed from one snapshot to the next, with the weights
    `before`; or those of windows of repeated random tokens, with their `tokens`.  A quantity of "projections" or
    "gradients" is given the `Projections` of layers, or their gradients, instead.  With `vectors` the rows also have
    queries, keys and values.  A `default` quantity is recorded without asking once it is registered.

    >>> @ss.head_quantity(long_name="largest weight")
    ... def largest_weight(rows):
    ...     return rows.weights.amax(-1)
    >>> largest_weight.name
    'largest_weight'
    """

    def make(compute: Callable[..., Tensor | Profile]) -> HeadQuantity:
        return HeadQuantity(compute.__name__, compute, long_name, units, reduction, sample, default, vectors)

    return make


def built_in(**options: Any) -> Callable[[Callable[..., Tensor | Profile]], HeadQuantity]:
    """A decorator that makes a quantity and registers it under its function's name."""

    def register(compute: Callable[..., Tensor | Profile]) -> HeadQuantity:
        return HEAD_QUANTITIES.register(compute.__name__)(head_quantity(**options)(compute))

    return register


def register_profile(profile: str, *, default: bool = False, **described: tuple[str, Reduction, str]) -> None:
    """Register what is recorded of a profile of `Rows`: its largest mean over rows, and the candidate that has it.

    Each is described by its long name, which of the two it is, and its units.
    """
    compute = attrgetter(profile)
    for name, (long_name, reduction, units) in described.items():
        member = HeadQuantity(name, compute, long_name, units, reduction, default=default)
        HEAD_QUANTITIES.register(name)(member)


@built_in(long_name="entropy of attention, mean over rows of more than one key", units="nats", default=True)
def entropy(rows: Rows) -> Tensor:
    """-Σ_s p_ts ln p_ts."""
    return rows.of_more_than(1, rows.entropy)


@built_in(long_name="entropy of attention relative to the largest that its row allows", default=True)
def normalized_entropy(rows: Rows) -> Tensor:
    """-Σ_s p_ts ln p_ts / ln n_t: 1 for uniform attention, whose entropy ln n_t is the largest, and 0 for one key."""
    return rows.of_more_than(1, rows.entropy / rows.keys.to(rows.entropy.dtype).log())


@built_in(long_name="effective number of keys 1/Σp², mean over rows of more than one key", default=True)
def effective_keys(rows: Rows) -> Tensor:
    """1/Σ_s p_ts²: n for equal weights on n keys."""
    return rows.of_more_than(1, torch.linalg.vector_norm(rows.shares, dim=-1) ** -2)


@built_in(long_name="largest attention weight, mean over rows of more than one key", default=True)
def top_1(rows: Rows) -> Tensor:
    """max_s p_ts."""
    return rows.of_more_than(1, rows.weights.amax(-1))


@built_in(long_name="sum of the five largest attention weights, mean over rows of more than five keys")
def top_5(rows: Rows) -> Tensor:
    """The sum of the five largest p_ts of a row."""
    return rows.of_more_than(5, rows.weights.topk(min(5, rows.weights.shape[-1]), -1).values.sum(-1))


@built_in(long_name="weight of each key if attention were even, mean over rows of more than one key", default=True)
def even_weight(rows: Rows) -> Tensor:
    """1/n_t: what the weights on single keys are to be compared with."""
    return rows.of_more_than(1, 1 / rows.keys.to(rows.weights.dtype))


@built_in(long_name="size of a row's largest attention logit before softmax", reduction="max", default=True)
def largest_logit(rows: Rows) -> Tensor:
    """|max_s z_ts|, after the scale and soft-capping; the largest of the rows that are measured.

    Rounding changes the weights by the size of the logits near a row's maximum, whatever their sign: a row at -1,000 is
    rounded as badly as one at 1,000, and keys far below the maximum have no weight.
    """
    return rows.of_more_than(0, rows.logits.amax(-1).abs())


@built_in(long_name="attention on the first token, mean over rows of more than one key", default=True)
def first_token(rows: Rows) -> Tensor:
    """p_t0; in a padded window, on the first token that is not padding; in packed ones, of the row's document."""
    return rows.of_more_than(1, rows.on(rows.first))


@built_in(long_name="attention on the learned sink, which is no key", default=True)
def learned_sink(rows: Rows) -> Tensor:
    """1 - Σ_s p_ts; NaN for models without a learned sink."""
    return rows.of_more_than(0, 1 - rows.weights.sum(-1)) if rows.has_sink else rows.unknown()


@built_in(long_name="attention on the token before, mean over rows of more than one key", default=True)
def previous_token(rows: Rows) -> Tensor:
    """p_t,t-1, for t > 0; NaN where the keys are other tokens than the queries."""
    weight = rows.of_more_than(1, rows.on((rows.positions - 1).clamp(min=0)))
    return weight.masked_fill(rows.positions[:, None] == 0, math.nan) if rows.is_self else weight * math.nan


@built_in(
    long_name="attention on tokens that follow an earlier occurrence of the same token", sample="repeated", default=True
)
def prefix_matching(rows: Rows) -> Tensor:
    """Σ_s p_ts over 0 < s <= t with x_{s-1} = x_t, s - 1 < t, for rows whose token x_t has occurred before.

    Measured on random tokens repeated once, where nothing but the repetition predicts anything: an induction head
    attends one past where the token was seen before.
    """
    if rows.tokens is None or not rows.is_self:
        return rows.unknown()
    now = rows.tokens.take_along_dim(rows.positions, 1)  # (B, r)
    earlier = rows.tokens[:, None, :-1] == now[:, :, None]  # (B, r, S - 1): x_{s-1} = x_t
    earlier &= torch.arange(rows.tokens.shape[1] - 1, device=now.device) < rows.positions[:, :, None]
    weight = (rows.weights[..., 1:] * earlier[:, None]).sum(-1)
    return rows.of_more_than(1, weight).masked_fill(~earlier.any(-1)[:, None], math.nan)


@built_in(long_name="share of attention that moved since the last snapshot", sample="followed", default=True)
def moved(rows: Rows) -> Tensor:
    """½ Σ_s |p_ts - p'_ts| with the weights p' of the snapshot before; NaN at the first."""
    if rows.before is None:
        return rows.unknown()
    return rows.of_more_than(1, 0.5 * torch.linalg.vector_norm(rows.weights - rows.before, 1, -1))


register_profile(
    "by_offset",
    offset_weight=("attention at the distance that has most of it", "peak", "1"),  # max_k of the mean of p_t,t-k
    offset=("distance that has most attention, from the row back", "place", "tokens"),  # 0 is the token itself
    default=True,
)
register_profile(
    "by_position",
    position_weight=("attention on the place of the window that has most of it", "peak", "1"),  # of rows that see it
    position=("place of the window that has most attention", "place", "1"),
    default=True,
)
register_profile(
    "by_token",
    token_weight=("attention on the token that has most of it", "peak", "1"),  # NaN where the ids are not known
    token_id=("token that has most attention", "place", "1"),
    default=True,
)


@built_in(long_name="share of rows that attend to the first token and get little from it", default=True, vectors=True)
def dormant_rows(rows: Rows) -> Tensor:
    """The share of rows with more than half of the attention on the first token, and a small output.

    The output Σ_s p_ts v_s is small if Σ_s p_ts |v_s|, which bounds it, is at most half of the mean |v_s|.
    """
    if rows.value_norms is None:
        return rows.unknown()
    is_small = _weighted(rows) <= 0.5
    return rows.of_more_than(1, ((rows.on(rows.first) > 0.5) & is_small).to(rows.weights.dtype))


@built_in(long_name="attention weighted by the norms of values, relative to their mean", vectors=True)
def output_size(rows: Rows) -> Tensor:
    """Σ_s p_ts |v_s| / mean |v_s|: 1 for uniform attention, small where attention lies on keys with small values."""
    return rows.unknown() if rows.value_norms is None else rows.of_more_than(1, _weighted(rows))


def _weighted(rows: Rows) -> Tensor:
    assert rows.value_norms is not None
    return (rows.weights @ rows.value_norms[..., None].to(rows.weights.dtype))[..., 0]


@built_in(long_name="norm of the first token's value, relative to the mean", vectors=True)
def sink_value(rows: Rows) -> Tensor:
    """|v_0| / mean |v_s|, of the first token that is not padding, of the row's document."""
    if rows.value_norms is None:
        return rows.unknown()
    norms = rows.value_norms.take_along_dim(rows.first[:, None].expand(-1, rows.weights.shape[1], -1), 2)
    return rows.of_more_than(1, norms.to(rows.weights.dtype))


@built_in(long_name="norm of queries, times the scale of logits", vectors=True)
def query_norm(rows: Rows) -> Tensor:
    """scale · |q_t|; with `key_norm` and `alignment` the factors of the largest logit of a row."""
    return rows.unknown() if rows.largest_pair is None else rows.of_more_than(0, rows.scale * rows.largest_pair[0])


@built_in(long_name="norm of the key with the largest logit of each row", vectors=True)
def key_norm(rows: Rows) -> Tensor:
    """|k_s| of the key s with the largest z_ts."""
    return rows.unknown() if rows.largest_pair is None else rows.of_more_than(0, rows.largest_pair[1])


@built_in(long_name="cosine between a query and the key with its largest logit", vectors=True)
def alignment(rows: Rows) -> Tensor:
    """<q_t, k_s> / (|q_t| |k_s|) of the key s with the largest z_ts."""
    return rows.unknown() if rows.largest_pair is None else rows.of_more_than(0, rows.largest_pair[2])


@built_in(long_name="smallest entropy that the size of the logits allows", units="nats")
def entropy_bound(rows: Rows) -> Tensor:
    """The lower bound of Zhai et al. (2023), for the logits of each row.

    Among n logits whose deviations from their mean have the norm σ, entropy is smallest if one is above all others,
    which are equal.  The difference is then g = σ √(n/(n-1)), and with β = e^-g the entropy is

        ln(1 + (n-1)β) + g (n-1)β / (1 + (n-1)β).

    The paper bounds σ by the norms of W_QK and of the input; here it is measured, so that the bound is at least as
    tight.
    """
    number = rows.keys.to(rows.weights.dtype)
    is_seen = rows.logits != -math.inf
    mean = torch.where(is_seen, rows.logits, 0.0).sum(-1) / number
    norm = torch.linalg.vector_norm(torch.where(is_seen, rows.logits - mean[..., None], 0.0), dim=-1)
    gap = norm * (number / (number - 1)).sqrt()
    others = (number - 1) * (-gap).exp()
    return rows.of_more_than(1, others.log1p() + gap * others / (1 + others))


@built_in(long_name="entropy above the smallest that the size of the logits allows", units="nats")
def entropy_margin(rows: Rows) -> Tensor:
    """entropy - `entropy_bound`: 0 where all attention goes to one key as sharply as such logits can."""
    bound = entropy_bound.of(rows, rows.keys.shape)
    assert isinstance(bound, Tensor)
    return rows.of_more_than(1, rows.entropy) - bound


@built_in(long_name="mean distance of attention", units="tokens")
def distance(rows: Rows) -> Tensor:
    """Σ_s p_ts |t - s|: how far a head looks."""
    return rows.of_more_than(1, (rows.shares * _distances(rows)).sum(-1)) if rows.is_self else rows.unknown()


@built_in(long_name=f"attention more than {FAR_DISTANCE:,} tokens away, of rows that have such keys")
def far_weight(rows: Rows) -> Tensor:
    """Σ_s p_ts over |t - s| > 1,000, for rows t > 1,000."""
    if not rows.is_self:
        return rows.unknown()
    is_far = _distances(rows) > FAR_DISTANCE
    has_far = (is_far & (rows.logits != -math.inf)).any(-1)
    return rows.of_more_than(1, (rows.shares * is_far).sum(-1)).masked_fill(~has_far, math.nan)


def _distances(rows: Rows) -> Tensor:
    """|t - s| of each row and key (B, 1, r, S)."""
    keys = torch.arange(rows.weights.shape[-1], device=rows.positions.device)
    return (rows.positions[:, None, :, None] - keys).abs()


register_profile(
    "by_head",
    head_similarity=("likeness to the most similar other head of the layer", "peak", "1"),  # 1 if they are equal
    similar_head=("the most similar other head of the layer", "place", "1"),
)


@built_in(long_name="largest input of the layer over the median", reduction="max", vectors=True)
def massive_activation(rows: Rows) -> Tensor:
    """max |x| / median |x| of what the attending module is given (Sun et al., 2024); the same for all heads."""
    if rows.hidden is None:
        return rows.unknown()
    sizes = precise(rows.hidden).abs().flatten(1)
    ratio = sizes.amax(1) / sizes.median(1).values.clamp(min=torch.finfo(sizes.dtype).tiny)
    return rows.of_more_than(0, ratio[:, None, None].expand_as(rows.weights[..., 0]).to(rows.weights.dtype))


@built_in(long_name="norm of the gradient of the head's query and key projections", sample="gradients")
def gradient_norm(projections: Projections) -> Tensor:
    """√(|∂W_Q|² + |∂W_K|²) (..., H); NaN where there are no gradients when the snapshot is taken."""
    query, key = (g.detach().float().square().sum((-2, -1)) for g in (projections.query, projections.key))
    return (query + key.repeat_interleave(query.shape[-1] // key.shape[-1], -1)).sqrt()


@built_in(long_name="largest singular value of W_QK", sample="projections", default=True)
def qk_singular_value(projections: Projections) -> Tensor:
    """The largest singular value σ of W_Q' W_K (..., H); NaN where a module does not show its projections.

    W_QK is D x D and is not formed.  Its squared singular values are the eigenvalues of the d x d matrix M = A B, where
    A = W_Q W_Q' and B = W_K W_K': if W_QK' W_QK y = σ² y, then W_K y is an eigenvector of M' = B A, and M has the same
    eigenvalues.  M is self-adjoint for the product <u, v>_B = u' B v, so that power iteration v <- M v / |M v| ends
    with the Rayleigh quotient <v, M v>_B / <v, v>_B, whose error is that of v squared.  `SQUARINGS` squarings of M make
    2 to that power steps of the iteration at once.
    """
    query, key = projections.query.detach().float(), projections.key.detach().float()
    with exact_products():
        a, b = query @ query.mT, key @ key.mT
        b = b.repeat_interleave(a.shape[-3] // b.shape[-3], -3)
        m = a @ b
        power, tiny = m, torch.finfo(m.dtype).tiny  # W_QK may be 0, as where training starts with W_Q = 0
        for _ in range(SQUARINGS):
            power = power / torch.linalg.matrix_norm(power, keepdim=True).clamp(min=tiny)
            power = power @ power
        longest = power.square().sum(-2, keepdim=True).argmax(-1, keepdim=True)
        v = power.take_along_dim(longest, -1)  # all columns lie along the eigenvector; the longest is 0 if M is
        squared = (v.mT @ (b @ (m @ v))) / (v.mT @ (b @ v)).clamp(min=tiny)
    return squared[..., 0, 0].clamp(min=0).sqrt()


def _shape(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes)) or "no axes"


def quantities(record: Sequence[str | HeadQuantity]) -> tuple[HeadQuantity, ...]:
    """The quantities that `record` names, each once; "default" stands for those that are recorded without asking."""
    record = [record] if isinstance(record, str) else record
    every = [HEAD_QUANTITIES.member(name) for name in HEAD_QUANTITIES]
    default = [member for member in every if member.default]
    members = [
        member for wanted in record for member in (default if wanted == "default" else [HEAD_QUANTITIES.member(wanted)])
    ]
    names = [member.name for member in members]
    if not names:
        raise InputError('record is empty: name at least one quantity, or "default".')
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"record has '{name}' twice: name each quantity once.")
    return tuple(members)
