"""What is recorded of each head, an open list; a user's own quantity is made the same way as these.

Row t of a head gives key s the weight p_ts; n_t keys are not hidden from it.  A quantity is a number for each row, and
its mean over windows and rows, or its maximum, is recorded.  It is NaN for rows that it says nothing of: a row of one
key has no choice, so it does not count; the weight on the k largest keys counts rows of more than k keys.

    @head_quantity(long_name="attention on the token itself")
    def on_itself(rows):
        return rows.of_more_than(1, rows.on(rows.positions))

    ss.watch(model, probe=batch, record=("entropy", on_itself))
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from scansnap.monitor.projections import Projections, largest_singular_values
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

    weights: Tensor  # (B, H, r, S); NaN where all keys are hidden
    logits: Tensor  # (B, H, r, S), -inf where a key is hidden
    keys: Tensor  # (B, H, r): the number of keys that are not hidden; 0 for padding, which does not count
    positions: Tensor  # (B, r): which tokens the rows are
    first: Tensor  # (B,): the first token of each window that is not padding
    is_self: bool  # whether keys and queries are the same tokens
    before: Tensor | None = None  # the weights at the look before
    tokens: Tensor | None = None  # (B, S): token ids, where keys are tokens with known ids

    @cached_property
    def entropy(self) -> Tensor:
        """-Σ_s p_ts ln p_ts of each row (B, H, r)."""
        return torch.special.entr(self.weights).sum(-1)

    @cached_property
    def largest(self) -> Tensor:
        """The five largest weights of each row (B, H, r, 5), largest first."""
        return _largest(self.weights, min(5, self.weights.shape[-1]))

    def of_more_than(self, count: int, values: Tensor) -> Tensor:
        """The values of rows with more than `count` keys, NaN for the others."""
        if count not in self._few_keys:
            self._few_keys[count] = self.keys <= count
        return values.masked_fill(self._few_keys[count], math.nan)

    @cached_property
    def _few_keys(self) -> dict[int, Tensor]:
        """Which rows have at most so many keys."""
        return {}

    def part(self, windows: slice, rows: slice = slice(None)) -> Rows:
        """Some rows of some windows."""
        per_head = (windows, slice(None), rows)
        return Rows(
            self.weights[per_head],
            self.logits[per_head],
            self.keys[per_head],
            self.positions[windows, rows],
            self.first[windows],
            self.is_self,
        )

    def on(self, keys: Tensor) -> Tensor:
        """The weight on one key of each row; `keys` (B, r)."""
        return self.weights.take_along_dim(keys[:, None, :, None], 3)[..., 0]


IN_BLOCKS = {"cpu": math.inf, "cuda": 512}
"""Keys from which on the largest weights are first looked for in blocks; a CPU finds them sooner in the whole row."""


def _largest(weights: Tensor, count: int) -> Tensor:
    """The largest weights of each row, largest first.

    Let a long row of S keys be cut into W blocks, each of every W-th key.  A block that `count` others exceed in their
    largest weights holds none of them, so they are looked for in the `count` blocks with the largest: among W weights
    and then among count · S / W, fewest for W = sqrt(count · S).
    """
    keys = weights.shape[-1]
    blocks = 1 << round(math.log2(math.sqrt(count * keys)))
    if keys % blocks == 0 and keys >= IN_BLOCKS.get(weights.device.type, IN_BLOCKS["cuda"]):
        in_blocks = weights.unflatten(-1, (-1, blocks))
        best = in_blocks.amax(-2).topk(count, -1).indices
        weights = in_blocks.take_along_dim(best[..., None, :], -1).flatten(-2)
    return weights.topk(count, -1).values


class QuantityError(InputError):
    """A quantity that cannot be computed as its function says."""

    def without_frames(self) -> QuantityError:
        """This, to be kept: the frames it came through would keep the tensors of a look; their lines stay as a note."""
        if self.__cause__ is not None:
            self.add_note("".join(traceback.format_exception(self.__cause__)))
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


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
    """A number for each head at each look.

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
                raise  # there may be room for fewer windows
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
    is given: those of the probe; those that are followed from look to look, with the
    weights `before`; or those of windows of repeated random tokens, with their `tokens`.  A quantity of "projections"
    is given the `Projections` of layers instead.

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
    return rows.of_more_than(1, torch.linalg.vector_norm(rows.weights, dim=-1) ** -2)


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
    """max_s z_ts, after the scale and soft-capping; over the rows that are looked at."""
    return rows.of_more_than(0, rows.logits.amax(-1))


@HEAD_QUANTITIES.register("first_token")
@head_quantity(long_name="attention on the first token, mean over rows of more than one key")
def first_token(rows: Rows) -> Tensor:
    """p_t0; in a padded window, on the first token that is not padding."""
    return rows.of_more_than(1, rows.on(rows.first[:, None].expand_as(rows.positions)))


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

    Measured on random tokens repeated once, where nothing but the repetition predicts anything: an induction head looks
    one past where the token was seen before.
    """
    if rows.tokens is None or not rows.is_self:
        return torch.full_like(rows.weights[..., 0], math.nan)
    now = rows.tokens.take_along_dim(rows.positions, 1)  # (B, r)
    earlier = rows.tokens[:, None, :-1] == now[:, :, None]  # (B, r, S - 1): x_{s-1} = x_t
    earlier &= torch.arange(rows.tokens.shape[1] - 1, device=now.device) < rows.positions[:, :, None]
    weight = (rows.weights[..., 1:] * earlier[:, None]).sum(-1)
    return rows.of_more_than(1, weight).masked_fill(~earlier.any(-1)[:, None], math.nan)


@HEAD_QUANTITIES.register("moved")
@head_quantity(long_name="share of attention that moved since the last look", sample="followed")
def moved(rows: Rows) -> Tensor:
    """½ Σ_s |p_ts - p'_ts| with the weights p' of the look before; NaN at the first look."""
    if rows.before is None:
        return torch.full_like(rows.weights[..., 0], math.nan)
    return rows.of_more_than(1, 0.5 * torch.linalg.vector_norm(rows.weights - rows.before, 1, -1))


@HEAD_QUANTITIES.register("qk_singular_value")
@head_quantity(long_name="largest singular value of W_QK", sample="projections")
def qk_singular_value(projections: Projections) -> Tensor:
    """The largest singular value of W_Q' W_K; NaN where a module does not show its projections."""
    return largest_singular_values(projections)


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
