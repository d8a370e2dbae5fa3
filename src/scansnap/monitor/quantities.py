"""What is recorded of each head, an open list; a user's own quantity is made the same way as these.

Row t of a head gives key s the weight p_ts; n_t keys are not hidden from it.  A quantity is a number for each row, and
its mean over windows and rows, or its maximum, is recorded.  It is NaN for rows that it says nothing of: a row of one
key has no choice, so it does not count; the weight on the k largest keys counts rows of more than k keys.

    @head_quantity(long_name="attention on the token itself")
    def on_itself(rows):
        return rows.of_more_than(1, rows.on(rows.positions))

    ss.watch(model, probe=batch, record=("entropy", on_itself))

`qk_singular_value` is a number of the projections that make queries and keys, where a module shows them.  Head h has
q = W_Q x + b_Q and k = W_K y + b_K with matrices (d, D), so that <q, k> is x' W_QK y with W_QK = W_Q' W_K, up to the
biases.  Its largest singular value σ bounds the logits: |<q, k>| <= σ |x| |y|.  With rotary positions, or normalized
queries and keys, the logits depend on more than W_QK; σ is then still that of the projections.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from scansnap.monitor.attention import exact_products
from scansnap.runtime.errors import InputError, brief, short_repr
from scansnap.validation.registry import Registry
from scansnap.validation.validate import validated

Reduction = Literal["mean", "max"]
Sample = Literal["probe", "followed", "repeated", "projections"]


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

    @cached_property
    def largest(self) -> Tensor:
        """The five largest weights of each row (B, H, r, 5), largest first."""
        return self.weights.topk(min(5, self.weights.shape[-1]), -1).values

    def of_more_than(self, count: int, values: Tensor) -> Tensor:
        """The values of rows with more than `count` keys, NaN for the others."""
        return values.masked_fill(self.keys <= count, math.nan)

    def part(self, windows: slice, rows: slice = slice(None)) -> Rows:
        """Some rows of some windows."""
        of_heads, of_rows = (windows, slice(None), rows), (windows, rows)
        return replace(
            self,
            weights=self.weights[of_heads],
            logits=self.logits[of_heads],
            keys=self.keys[of_heads],
            positions=self.positions[of_rows],
            first=self.first[of_rows],
            tokens=None if self.tokens is None else self.tokens[windows],
        )

    @staticmethod
    def concatenate(parts: Sequence[Rows]) -> Rows:
        """The rows of several layers, as if they were those of more windows."""
        if len(parts) == 1:
            return parts[0]
        names = [field.name for field in fields(Rows) if isinstance(getattr(parts[0], field.name), Tensor)]
        joined: dict[str, Any] = {name: torch.cat([getattr(rows, name) for rows in parts]) for name in names}
        return replace(parts[0], **joined)

    def on(self, keys: Tensor) -> Tensor:
        """The weight on one key of each row; `keys` (B, r)."""
        return self.weights.take_along_dim(keys[:, None, :, None], 3)[..., 0]


class QuantityError(InputError):
    """A quantity that cannot be computed as its function says."""

    def without_frames(self) -> QuantityError:
        """This error without its frames, which would keep the tensors of a snapshot; their lines stay as a note."""
        if self.__cause__ is not None:
            self.add_note("".join(traceback.format_exception(self.__cause__)))
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


SQUARINGS = 10
"""Squarings of M in the power iteration for its largest eigenvalue."""

TAKEN = ("pattern", "finite")
"""Names of what every watch records."""


def lacks_memory(error: Exception) -> bool:
    """Whether something failed for lack of memory, which devices and libraries say in their own ways."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and ("out of memory" in said or "alloc" in said)
    )


@validated
@dataclass(frozen=True)
class HeadQuantity:
    """A number for each head at each snapshot.

    >>> ss.HEAD_QUANTITIES.member("entropy").units
    'nats'
    """

    name: str
    compute: Callable[..., Tensor]  # (B, H, r), NaN for rows that do not count; of `Projections`, (..., H)
    long_name: str
    units: str = "1"
    reduction: Reduction = "mean"
    sample: Sample = "probe"

    def __post_init__(self) -> None:
        object.__setattr__(self, "__wrapped__", self.compute)
        if not self.name.isidentifier():
            raise InputError(f"a quantity is called '{self.name}': give it a name of letters, digits and underscores.")
        if self.name in TAKEN:
            raise InputError(f"a quantity is called '{self.name}', as what every watch records: give it another name.")

    def of(self, measured: object, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """What the function says of rows or projections; a function that fails is named."""
        try:
            values = self.compute(measured)
        except Exception as error:
            if lacks_memory(error):
                raise  # memory may suffice for fewer windows
            raise QuantityError(
                f"the quantity '{self.name}' fails ({type(error).__name__}: {brief(error)}): mend its function."
            ) from error
        if not isinstance(values, Tensor) or values.shape != torch.Size(shape):
            what = f"a tensor of {_shape(values.shape)}" if isinstance(values, Tensor) else short_repr(values)
            raise QuantityError(
                f"the quantity '{self.name}' gives {what}: return a number for each window, head and row, here "
                f"{_shape(shape)}."
            )
        return values.to(device, dtype)


HEAD_QUANTITIES: Registry[HeadQuantity] = Registry("quantity of attention")
"""What a watch can record of a head, by name: `record=`.

>>> "entropy" in ss.HEAD_QUANTITIES
True
"""


@validated
def head_quantity(
    *, long_name: str, units: str = "1", reduction: Reduction = "mean", sample: Sample = "probe"
) -> Callable[[Callable[..., Tensor]], HeadQuantity]:
    """A decorator that turns a function of `Rows` into a quantity with the function's name.

    The function returns a number for each row (B, H, r), NaN for those that do not count.  `sample` says which rows it
    is given: those of the probe; those that are followed from one snapshot to the next, with the weights `before`; or
    those of windows of repeated random tokens, with their `tokens`.  A quantity of "projections" is given the
    `Projections` of layers instead.

    >>> @ss.head_quantity(long_name="largest weight")
    ... def largest_weight(rows):
    ...     return rows.weights.amax(-1)
    >>> largest_weight.name
    'largest_weight'
    """

    def make(compute: Callable[..., Tensor]) -> HeadQuantity:
        return HeadQuantity(compute.__name__, compute, long_name, units, reduction, sample)

    return make


@HEAD_QUANTITIES.register("entropy")
@head_quantity(long_name="entropy of attention, mean over rows of more than one key", units="nats")
def entropy(rows: Rows) -> Tensor:
    """-Σ_s p_ts ln p_ts."""
    return rows.of_more_than(1, rows.entropy)


@HEAD_QUANTITIES.register("normalized_entropy")
@head_quantity(long_name="entropy of attention relative to the largest that its row allows")
def normalized_entropy(rows: Rows) -> Tensor:
    """-Σ_s p_ts ln p_ts / ln n_t: 1 for uniform attention, whose entropy ln n_t is the largest, and 0 for one key."""
    return rows.of_more_than(1, rows.entropy / rows.keys.log())


@HEAD_QUANTITIES.register("effective_keys")
@head_quantity(long_name="effective number of keys 1/Σp², mean over rows of more than one key")
def effective_keys(rows: Rows) -> Tensor:
    """1/Σ_s p_ts²: n for equal weights on n keys."""
    return rows.of_more_than(1, torch.linalg.vector_norm(rows.shares, dim=-1) ** -2)


@HEAD_QUANTITIES.register("top_1")
@head_quantity(long_name="largest attention weight, mean over rows of more than one key")
def top_1(rows: Rows) -> Tensor:
    """max_s p_ts."""
    return rows.of_more_than(1, rows.largest[..., 0])


@HEAD_QUANTITIES.register("top_5")
@head_quantity(long_name="sum of the five largest attention weights, mean over rows of more than five keys")
def top_5(rows: Rows) -> Tensor:
    """The sum of the five largest p_ts of a row."""
    return rows.of_more_than(5, rows.largest.sum(-1))


@HEAD_QUANTITIES.register("even_weight")
@head_quantity(long_name="weight of each key if attention were even, mean over rows of more than one key")
def even_weight(rows: Rows) -> Tensor:
    """1/n_t: what the weights on single keys are to be compared with."""
    return rows.of_more_than(1, 1 / rows.keys)


@HEAD_QUANTITIES.register("largest_logit")
@head_quantity(long_name="largest attention logit before softmax", reduction="max")
def largest_logit(rows: Rows) -> Tensor:
    """max_s z_ts, after the scale and soft-capping; over the rows that are measured."""
    return rows.of_more_than(0, rows.logits.amax(-1))


@HEAD_QUANTITIES.register("first_token")
@head_quantity(long_name="attention on the first token, mean over rows of more than one key")
def first_token(rows: Rows) -> Tensor:
    """p_t0; in a padded window, on the first token that is not padding; in packed ones, of the row's document."""
    return rows.of_more_than(1, rows.on(rows.first))


@HEAD_QUANTITIES.register("learned_sink")
@head_quantity(long_name="attention on the learned sink, which is no key")
def learned_sink(rows: Rows) -> Tensor:
    """1 - Σ_s p_ts; NaN for models without a learned sink."""
    mass = rows.of_more_than(0, 1 - rows.weights.sum(-1))
    return mass if rows.has_sink else torch.full_like(mass, math.nan)


@HEAD_QUANTITIES.register("previous_token")
@head_quantity(long_name="attention on the token before, mean over rows of more than one key")
def previous_token(rows: Rows) -> Tensor:
    """p_t,t-1, for t > 0; NaN where the keys are other tokens than the queries."""
    weight = rows.of_more_than(1, rows.on((rows.positions - 1).clamp(min=0)))
    return weight.masked_fill(rows.positions[:, None] == 0, math.nan) if rows.is_self else weight * math.nan


@HEAD_QUANTITIES.register("prefix_matching")
@head_quantity(long_name="attention on tokens that follow an earlier occurrence of the same token", sample="repeated")
def prefix_matching(rows: Rows) -> Tensor:
    """Σ_s p_ts over 0 < s <= t with x_{s-1} = x_t, s - 1 < t, for rows whose token x_t has occurred before.

    Measured on random tokens repeated once, where nothing but the repetition predicts anything: an induction head
    attends one past where the token was seen before.
    """
    if rows.tokens is None or not rows.is_self:
        return torch.full_like(rows.weights[..., 0], math.nan)
    now = rows.tokens.take_along_dim(rows.positions, 1)  # (B, r)
    earlier = rows.tokens[:, None, :-1] == now[:, :, None]  # (B, r, S - 1): x_{s-1} = x_t
    earlier &= torch.arange(rows.tokens.shape[1] - 1, device=now.device) < rows.positions[:, :, None]
    weight = (rows.weights[..., 1:] * earlier[:, None]).sum(-1)
    return rows.of_more_than(1, weight).masked_fill(~earlier.any(-1)[:, None], math.nan)


@HEAD_QUANTITIES.register("moved")
@head_quantity(long_name="share of attention that moved since the last snapshot", sample="followed")
def moved(rows: Rows) -> Tensor:
    """½ Σ_s |p_ts - p'_ts| with the weights p' of the snapshot before; NaN at the first."""
    if rows.before is None:
        return torch.full_like(rows.weights[..., 0], math.nan)
    return rows.of_more_than(1, 0.5 * torch.linalg.vector_norm(rows.weights - rows.before, 1, -1))


@HEAD_QUANTITIES.register("qk_singular_value")
@head_quantity(long_name="largest singular value of W_QK", sample="projections")
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
    """The quantities that `record` names, each once."""
    members = [HEAD_QUANTITIES.member(wanted) for wanted in record]
    names = [member.name for member in members]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"record has '{name}' twice: name each quantity once.")
    return tuple(members)


PAIRS = (
    ("q_proj", "k_proj"),
    ("query", "key"),
    ("q", "k"),
    ("q_lin", "k_lin"),
    ("to_q", "to_k"),
    ("wq", "wk"),
    ("w_q", "w_k"),
    ("query_proj", "key_proj"),
)
"""Names under which modules hold the projections of queries and of keys."""

FUSED = ("c_attn", "qkv", "qkv_proj", "in_proj", "Wqkv", "wqkv", "to_qkv", "query_key_value")
"""Names under which modules hold one projection of queries, keys and values."""

BY_HEAD = ("query_key_value",)
"""Of these, the rows of each head are together, and not all queries first."""


@dataclass(frozen=True)
class Projections:
    """What makes the queries and keys of a layer's heads."""

    query: Tensor  # (..., H, d, D)
    key: Tensor  # (..., G, d, D), G dividing H


def find_projections(module: nn.Module, heads: int, width: int) -> Projections | None:
    """The projections of a module with this many heads; None if it shows none.

    Queries have `width` channels, or 0 if that is not known.  Several heads may share their keys.
    """
    width = width or int(getattr(module, "head_dim", 0) or 0)
    if isinstance(module, nn.MultiheadAttention):
        if module.in_proj_weight is None:
            return _by_head(module.q_proj_weight, module.k_proj_weight, heads, width)
        query, key, _ = module.in_proj_weight.chunk(3)
        return _by_head(query, key, heads, width)
    for names in PAIRS:
        pair = [_matrix(getattr(module, name, None)) for name in names]
        if pair[0] is not None and pair[1] is not None:
            return _by_head(pair[0], pair[1], heads, width)
    for name in FUSED:
        fused = _matrix(getattr(module, name, None))
        if fused is None:
            continue
        width = width or len(fused) // (3 * heads)
        groups, rest = divmod(len(fused) - heads * width, 2 * width)
        if rest or (name in BY_HEAD and groups != heads):
            return None
        if name in BY_HEAD:
            query, key, _ = fused.view(heads, 3, width, -1).unbind(1)
            return Projections(query, key)
        return _by_head(fused[: heads * width], fused[heads * width :][: groups * width], heads, width)
    return None


def _by_head(query: Tensor, key: Tensor, heads: int, width: int) -> Projections | None:
    """The matrices (rows, D) of queries and keys cut into heads; None if their sizes do not fit."""
    width = width or len(query) // heads
    if len(query) != heads * width or len(key) % width or heads % max(1, len(key) // width):
        return None
    return Projections(query.unflatten(0, (-1, width)), key.unflatten(0, (-1, width)))


def _matrix(part: object) -> Tensor | None:
    """The weight (rows, D) of a linear layer; Conv1D of Hugging Face has it transposed."""
    base = getattr(part, "base_layer", part)
    plain = getattr(base, "weight", None)
    if not isinstance(plain, Tensor) or type(plain) not in (Tensor, nn.Parameter) or plain.ndim != 2 or plain.is_meta:
        return None
    weight = plain if base is part else _adapted(part, plain)
    if weight is not None and type(base).__name__ == "Conv1D":
        weight = weight.T
    return weight


def _adapted(part: Any, weight: Tensor) -> Tensor | None:
    """The weight of a layer with PEFT's adapters, which are added to it while they are not merged; None for others."""
    if getattr(part, "merged", False) or getattr(part, "disable_adapters", False):
        return weight
    if not hasattr(part, "lora_A"):
        return None
    names = [name for name in part.active_adapters if name in part.lora_A]
    if any(getattr(part, kind, {}).get(name) for kind in ("lora_variant", "use_dora") for name in names):
        return None  # not a sum
    with torch.no_grad():
        return sum((part.get_delta_weight(name) for name in names), start=weight.detach())
