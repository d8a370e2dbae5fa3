"""The input of the model at every snapshot: fixed windows, and some with random tokens that repeat.

A probe is what the model is called with: a tensor, a tuple of arguments, a mapping of keyword arguments, a list of
these, or a function of the model that calls it.  Tensors may also lie in mappings, lists and tuples among the
arguments; one that is given twice stays one tensor.

A sample of the rows is measured, the same at every snapshot: each window's positions are cut into equal parts and one
position is drawn from each, so that a mean over rows is unbiased and varies less than with independent draws.

Whether a head finds an earlier occurrence of the current token is measured on a window x_0 ... x_{L-1} x_0 ... x_{L-1}
of tokens drawn at random, without repetition where the probe has enough, from those that occur in the probe.  Such
windows are shown together with the others, so that they cost no pass of their own.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scansnap.monitor.attention import every_row
from scansnap.runtime.errors import InputError

WINDOWS_PER_REPEATED = 8
"""Windows of the probe for each window of repeated tokens."""

TOKEN_ARGUMENTS = ("input_ids", "decoder_input_ids", "labels")
"""Keyword arguments that hold token ids; `labels` are shifted to the right by models that make their input of them."""

POSITION_ARGUMENT, DOCUMENT_ARGUMENTS = (
    "position_ids",
    ("document_ids", "doc_ids", "segment_ids", "sequence_ids", "seq_idx"),
)
"""Keyword arguments that show where the documents of a packed window begin: at position 0, or with another id."""

BOUNDARY_ARGUMENTS = ("cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q")
"""Keyword arguments of variable-length kernels: where each document of the only window begins, and where it ends."""

PATTERN_SIZE = 48
"""Tokens of the first window whose attention is kept."""


@dataclass(frozen=True)
class Piece:
    """Some windows of the probe, as the model is called with them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    start: int  # number of the first window in the whole probe
    windows: int
    repeated: int  # further windows of repeated tokens, at the end
    follow: bool = True  # whether its rows are followed between snapshots

    function: Callable[[nn.Module], Any] | None = None  # calls the model in its own way

    def call(self, model: nn.Module) -> None:
        """Run the model; what it changes of its arguments, such as a key-value cache, is not changed here."""
        if self.function is not None:
            self.function(model)
            return
        tensors = {id(tensor): tensor for _, tensor in _tensors(self.args, self.kwargs)}  # which are not copied
        args, kwargs = copy.deepcopy((self.args, self.kwargs), tensors)
        model(*args, **kwargs)


class Probe:
    """The windows of a probe, and which rows of theirs are measured."""

    def __init__(
        self, probe: Any, rows: int | None, device: torch.device, *, followed: int | None = None, seed: int = 0
    ) -> None:
        """`followed` is the number of first windows whose attention is followed between snapshots; all if None.

        The seed is that of the sampled rows and of the repeated tokens.
        """
        self.rows, self.device, self._seed = rows, device, seed
        self._followed = followed
        self.repeats = True  # whether windows of repeated tokens are shown too
        self.function: Callable[[nn.Module], Any] | None = probe if callable(probe) else None
        parts = [] if self.function else probe if isinstance(probe, list) else [probe]
        if not self.function and not parts:
            raise InputError("the probe is an empty list: give the model's input, a batch as it is trained on.")
        self._calls = [_arguments(part, device) for part in parts]
        if any(value.numel() == 0 for call in self._calls for _, value in _tensors(*call)[:1]):
            raise InputError("the probe is empty: give at least one window.")
        is_ragged = any(value.is_nested for call in self._calls for _, value in _tensors(*call))
        self.batch_dim = None if self.function or is_ragged else 0  # which axis counts windows; None if not known
        self._positions: dict[tuple[int, int, int], Tensor] = {}
        self._repeated: dict[tuple[int, int, int | None], Tensor] = {}

    def to(self, device: torch.device) -> Probe:
        """The same probe on another device."""
        moved = copy.copy(self)
        moved.device, moved._positions, moved._repeated = device, {}, {}
        moved.__dict__.pop("vocabulary", None)
        moved._calls = [_map(call, lambda _, value: value.to(device), lambda _: True) for call in self._calls]
        return moved

    def without_repeated(self) -> Probe:
        """The same probe without windows of repeated tokens."""
        alone = copy.copy(self)
        alone.repeats = False
        return alone

    @property
    def windows(self) -> int:
        """The number of windows, without repeated ones."""
        return sum(self._count(call) for call in self._calls) or 1

    @property
    def followed_windows(self) -> int:
        """The number of windows whose attention is followed between snapshots."""
        return self.windows if self._followed is None else min(self._followed, self.windows)

    def __str__(self) -> str:
        if self.function is not None:
            return f"the function {getattr(self.function, '__qualname__', type(self.function).__qualname__)}"
        shapes = [
            ", ".join(_in_words(name, value) for name, value in _tensors(*call)) or "no tensors" for call in self._calls
        ]
        return "; ".join(shapes)

    @cached_property
    def checksum(self) -> str:
        """A checksum of its numbers, which distinguishes probes of the same shape; empty for a function."""
        sum_of_all = 0
        for call in self._calls:
            for name, value in _tensors(*call):
                sum_of_all = zlib.crc32(name.encode(), sum_of_all)
                for part in value.unbind() if value.is_nested else [value]:
                    content = part.contiguous().flatten().view(torch.uint8).cpu().numpy()
                    sum_of_all = zlib.crc32(content.tobytes(), sum_of_all)
        return f"{sum_of_all:08x}" if self._calls else ""

    def pieces(self, at_most: int | None, *, repeat: bool = True) -> Iterator[Piece]:
        """The probe in pieces of at most this many windows, the last of each call with the repeated windows."""
        if self.function is not None:
            yield Piece((), {}, 0, 1, 0, function=self.function)
            return
        start = 0
        for args, kwargs in self._calls:
            count = self._count((args, kwargs))
            size = count if at_most is None or self.batch_dim is None else max(1, min(at_most, count))
            cuts = sorted({*range(0, count, size), min(max(0, self.followed_windows - start), count), count})
            for first, last in pairwise(cuts):
                part: tuple[tuple[Any, ...], dict[str, Any]] = (args, kwargs)
                if len(cuts) > 2:
                    part = self._cut(part, first, last)
                repeated = 0
                if repeat and start == 0 and last == count:
                    part, repeated = self._with_repeated(part, count)
                follow = start + first < self.followed_windows
                yield Piece(part[0], part[1], start + first, last - first, repeated, follow)
            start += count

    def find_windows(self, piece: Piece, layers: Sequence[tuple[int, int]]) -> None:
        """Find which axis counts windows from the windows and queries that layers attend with."""
        if self.batch_dim is None:
            return
        count = piece.windows
        if any(windows % count == 0 for windows, _ in layers):
            return
        shapes = {tuple(value.shape[:2]) for _, value in _tensors(piece.args, piece.kwargs)}
        self.batch_dim = 1 if any((queries, windows) in shapes for windows, queries in layers) else None

    def positions(self, piece: Piece, batch: int, length: int) -> Tensor:
        """The rows (batch, r) of a piece that are measured; the first ones of a sample are spread out too.

        A model may cut each window into several, so that `batch` is a multiple of the piece's windows.
        """
        if self.rows is None:
            return every_row(batch, length, self.device)
        share = max(1, batch // (piece.windows + piece.repeated))
        key = share, length, piece.repeated
        if key not in self._positions:
            rng = np.random.default_rng([self._seed, length])
            count = self.windows * share
            size = max(1, min(length, self.rows // count))
            edges = np.ceil(np.linspace(0, length, size + 1)).astype(np.int64)
            drawn = rng.integers(edges[:-1], edges[1:], (count + piece.repeated * share, size))
            self._positions[key] = torch.from_numpy(drawn[:, _spread_order(size)]).to(self.device)
        drawn_rows = self._positions[key]
        own = drawn_rows[piece.start * share : (piece.start + piece.windows) * share]
        rows = torch.cat([own, drawn_rows[self.windows * share :]]) if piece.repeated else own
        return rows if len(rows) == batch else rows[:1].expand(batch, -1)

    def token_ids(self) -> Tensor | None:
        """The token ids (windows, T) of the first call, if it has any."""
        named = _tensors(*self._calls[0]) if self._calls else []
        first = [value for name, value in named if name.isdigit()][:1]
        for value in [*(value for ids in TOKEN_ARGUMENTS for name, value in named if name == ids), *first]:
            is_ids = value.ndim == 2 and not value.is_floating_point() and value.dtype != torch.bool
            return (value.T if self.batch_dim else value) if is_ids and not value.is_nested else None
        return None

    @cached_property
    def vocabulary(self) -> Tensor | None:
        """All token ids in the probe, in ascending order, where it has any."""
        named = [pair for call in self._calls for pair in _tensors(*call)]
        ids = [v.flatten() for name, v in named if _are_ids(name, v)]
        return torch.cat(ids).unique() if ids else None

    def repeated_tokens(self, length: int, count: int) -> Tensor | None:
        """`count` windows (count, length) of random tokens that repeat after half of it."""
        key = length, count, self.batch_dim
        if key in self._repeated:
            return self._repeated[key]
        ids = self.token_ids()
        if ids is None or length < 4:
            return None
        pool = ids.unique().cpu().numpy()
        pool = pool[pool >= 0]  # labels that are ignored are negative
        rng = np.random.default_rng([self._seed, length, count])
        half = length // 2
        drawn = np.stack([rng.choice(pool, half, replace=len(pool) < half) for _ in range(count)])
        self._repeated[key] = torch.from_numpy(drawn[:, np.arange(length) % half]).to(self.device)
        return self._repeated[key]

    def masks(self, piece: Piece, batch: int, length: int) -> dict[str, Tensor]:
        """Which tokens (batch, length) may be no padding by each mask of the call, by the mask's name.

        A mask may be true for padding or for the others, so both are here; attention itself shows which holds.
        """
        masks = {
            name: value.bool()
            for name, value in _tensors(piece.args, piece.kwargs)
            if name.endswith("mask") and value.shape == (batch, length) and not value.is_floating_point()
        }
        return masks | {f"not {name}": ~mask for name, mask in masks.items()}

    def first_of_documents(self, piece: Piece, batch: int, length: int) -> Tensor | None:
        """The first token (batch, length) of each token's document, where the call has packed documents."""
        for name, value in _tensors(piece.args, piece.kwargs):
            if name in (POSITION_ARGUMENT, *DOCUMENT_ARGUMENTS) and value.ndim == 2 and value.shape[1] == length:
                is_first = value == 0
                if name != POSITION_ARGUMENT:
                    is_first = torch.ones_like(value, dtype=torch.bool)
                    is_first[:, 1:] = value[:, 1:] != value[:, :-1]
            elif name in BOUNDARY_ARGUMENTS and value.ndim == 1 and batch == 1:
                is_first = torch.zeros(1, length + 1, dtype=torch.bool, device=value.device)
                is_first = is_first.index_fill(1, value.long().clamp(0, length), True)[:, :length]
            else:
                continue
            places = torch.arange(length, device=value.device)
            return torch.where(is_first, places, 0).cummax(1).values.expand(batch, -1)
        return None

    def key_tokens(self, piece: Piece, batch: int, length: int) -> Tensor | None:
        """The ids (batch, length) of tokens, if exactly one argument of this shape holds ids."""
        named = _tensors(piece.args, piece.kwargs)
        ids = [v for name, v in named if _are_ids(name, v) and v.shape == (batch, length)]
        return ids[0] if len(ids) == 1 else None

    def lengths(self, piece: Piece) -> set[int]:
        """The numbers of tokens that attention may be among, from what the model is called with."""
        shapes = [value.shape for _, value in _tensors(piece.args, piece.kwargs) if not value.is_nested]
        return {shape[min(1 - (self.batch_dim or 0), len(shape) - 1)] for shape in shapes}

    def _count(self, call: tuple[tuple[Any, ...], dict[str, Any]]) -> int:
        tensors = _tensors(*call)
        return tensors[0][1].shape[self.batch_dim] if self.batch_dim is not None and tensors else 1

    def _cut(self, call: tuple[tuple[Any, ...], dict[str, Any]], first: int, last: int) -> Any:
        count = self._count(call)
        return _map(call, lambda _, value: value.narrow(self.batch_dim or 0, first, last - first), self._has(count))

    def _has(self, count: int) -> Callable[[Tensor], bool]:
        dim = self.batch_dim
        return lambda value: dim is not None and value.ndim > dim and value.shape[dim] == count

    def _with_repeated(self, call: Any, count: int) -> tuple[Any, int]:
        """The call with windows of repeated tokens after its own."""
        number = max(1, count // WINDOWS_PER_REPEATED)
        dim, ids = self.batch_dim, self.token_ids()
        has_boundaries = any(name in BOUNDARY_ARGUMENTS for name, _ in _tensors(*call))
        if not self.repeats or dim is None or ids is None or has_boundaries:
            return call, 0

        def extend(name: str, value: Tensor) -> Tensor:
            tail = value.narrow(dim, 0, 1).expand(*(number if i == dim else -1 for i in range(value.ndim)))
            if value.ndim == 2 and (name in TOKEN_ARGUMENTS or (name == "0" and value.dtype == ids.dtype)):
                length = value.shape[1 - dim]
                tokens = self.repeated_tokens(length + (name == "labels"), number)
                if tokens is not None:
                    tokens = tokens[:, 1:] if name == "labels" else tokens
                    tail = (tokens.T if dim else tokens).to(value.dtype)
            elif value.ndim == 2 and name.endswith("attention_mask"):
                tail = torch.ones_like(tail)
            elif value.ndim == 2 and name == POSITION_ARGUMENT:
                places = torch.arange(value.shape[1 - dim], device=value.device, dtype=value.dtype)
                tail = (places[:, None] if dim else places).expand_as(tail)
            elif name in DOCUMENT_ARGUMENTS or (value.ndim == 2 and name.endswith("key_padding_mask")):
                tail = torch.zeros_like(tail)
            return torch.cat([value, tail], dim)

        windows = self._count(call)
        return _map(call, extend, self._has(windows)), number


def _are_ids(name: str, value: Tensor) -> bool:
    """Whether an argument of the model holds token ids."""
    is_named = name in TOKEN_ARGUMENTS[:2] or name == "0"
    return is_named and not value.is_floating_point() and value.dtype != torch.bool and not value.is_nested


def _arguments(part: Any, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments that a part of a probe means, copied to the model's device."""
    if isinstance(part, Tensor):
        call: Any = ((part,), {})
    elif isinstance(part, tuple):
        call = (part, {})
    elif isinstance(part, Mapping):
        call = ((), dict(part))
    elif isinstance(part, str):
        raise InputError("the probe is text: tokenize it first, and give the token ids as a tensor.")
    elif isinstance(part, np.ndarray):
        raise InputError("the probe is a NumPy array: give torch.from_numpy(...) of it.")
    else:
        raise InputError(
            f"the probe is {type(part).__name__}: give a tensor, a tuple of arguments, a mapping of keyword arguments, "
            "a list of these, or a function of the model."
        )
    return _map(call, lambda _, value: value.detach().to(device, copy=True), lambda _: True)


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    """All tensors but numbers, each with its innermost name or place."""
    named: list[tuple[str, Tensor]] = []

    def note(name: str, value: Tensor) -> Tensor:
        named.append((name, value))
        return value

    _map((tuple(args), dict(kwargs)), note, lambda value: value.ndim > 0)
    return named


def _in_words(name: str, value: Tensor) -> str:
    size = f"{len(value)} ragged windows" if value.is_nested else " x ".join(map(str, value.shape))
    return f"{'a tensor' if name.isdigit() else name} of {size}"


def _map(
    call: tuple[tuple[Any, ...], dict[str, Any]], change: Callable[[str, Tensor], Tensor], of: Callable[[Tensor], bool]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with some of its tensors changed, each once however often it is given."""
    done: dict[tuple[int, bool], Tensor] = {}

    def change_once(name: str, value: Tensor) -> Tensor:
        key = id(value), name == "labels"  # which are shifted
        if of(value) and key not in done:
            done[key] = change(name, value)
        return done.get(key, value)

    return _map_leaves("", call[0], change_once), _map_leaves("", call[1], change_once)


def _map_leaves(name: str, value: Any, change: Callable[[str, Tensor], Tensor]) -> Any:
    """The value with every tensor in it changed; `name` is that of the value, or its place."""
    if isinstance(value, Tensor):
        return change(name, value)
    if isinstance(value, MutableMapping):
        filled = copy.copy(value)
        filled.update({key: _map_leaves(str(key), item, change) for key, item in value.items()})
        return filled
    if isinstance(value, list | tuple):
        items = [_map_leaves(str(i), item, change) for i, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _spread_order(count: int) -> NDArray[np.int64]:
    """0 ... count - 1 in an order whose every beginning is spread evenly, by multiples of the golden ratio."""
    golden = (5**0.5 - 1) / 2
    ranks = np.argsort(np.argsort((np.arange(count) * golden) % 1.0, kind="stable"))
    return ranks.astype(np.int64)
