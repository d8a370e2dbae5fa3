"""A torch function mode that sees attention while a model computes it.

Every call of a torch function passes through the mode, however it was reached, and goes on unchanged.  What is measured
of an attention is reduced to a few numbers for each head at once, on the device, so that no layer's weights outlive it.

The module of a call is the innermost one of the model on Python's stack, which needs no hooks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from scansnap.monitor.calls import AttentionCall, Kind
from scansnap.monitor.probe import SHOWN, Piece, Probe
from scansnap.monitor.quantities import HeadQuantity, Rows

FOLLOWED = 1 << 25
"""Weights of all layers that are kept from look to look to see what moved: 128 MiB in float32.  Where all rows have
more, fewer rows are followed."""


class AllSeen(BaseException):
    """Ends a forward pass after its last attention."""


@dataclass
class SeenLayer:
    """What one attention of the model has shown."""

    name: str
    kind: Kind
    heads: int
    queries: int
    keys: int
    before: Tensor | None = None  # weights of the rows that are followed, at the look before
    has_before: bool = False
    error: float = math.nan  # of the output that the weights give, relative to the largest value


@dataclass
class LayerSums:
    """Sums over the rows of one layer at one look: quantities along the first axis, heads along the second."""

    totals: Tensor
    counts: Tensor
    is_bad: Tensor  # whether a logit was not finite
    pattern: Tensor | None = None


@dataclass
class Sight(TorchFunctionMode):
    """Sees the attention of one pass over a piece of the probe, and adds it to `sums`."""

    names: Mapping[int, str]  # of the model's modules, by id
    probe: Probe
    piece: Piece
    record: Sequence[HeadQuantity]
    layers: dict[str, SeenLayer]  # those known so far, in the order of the model; a first look adds to them
    sums: dict[str, LayerSums] = field(default_factory=dict)
    learns: bool = False  # whether this is a first look
    ends: bool = False  # whether to stop after the last layer
    failure: Exception | None = None
    _calls: dict[str, int] = field(default_factory=dict)
    _busy: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention and not self._busy:
            return self._see_fused(func, args, kwargs)
        return func(*args, **kwargs)

    def see(self, module: nn.Module | None, call: AttentionCall, output: Callable[[], Tensor]) -> Tensor:
        """Measure a call and return the output that the model computes; a failure must not stop the model halfway."""
        name = self._layer_name(module)
        if self.failure is None:
            try:
                self._measure(name, call)
            except Exception as error:
                self.failure = error
        if self.ends and self._is_last(name):
            raise AllSeen
        result = output()
        if self.learns and self.failure is None:
            self._check(name, call, result)
        return result

    def _see_fused(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call, dropout = fused_call(*args, **kwargs)
        windows = self.piece.windows + self.piece.repeated
        if call.query.ndim != 4:
            call = with_heads(call, windows)
        if dropout:  # it is not what attention is
            self.learns, learns = False, self.learns
            result = self.see(self._module(), call, lambda: func(*args, **kwargs))
            self.learns = learns
            return result
        return self.see(self._module(), call, lambda: func(*args, **kwargs))

    def _module(self) -> nn.Module | None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if id(owner) in self.names and isinstance(owner, nn.Module):
                return owner
            frame = frame.f_back
        return None

    def _layer_name(self, module: nn.Module | None) -> str:
        """The module's name, with the number of the call if it has attended before in this pass."""
        name = self.names.get(id(module), "") or type(module).__name__
        self._calls[name] = number = self._calls.get(name, 0) + 1
        return name if number == 1 else f"{name} (call {number})"

    def _is_last(self, name: str) -> bool:
        return bool(self.layers) and name == next(reversed(self.layers))

    def _measure(self, name: str, call: AttentionCall) -> None:
        if name not in self.layers:
            if not self.learns:
                return  # a layer that the first look did not see has no place in the result
            self.layers[name] = self._learn(name, call)
        layer = self.layers[name]
        windows, _, length, keys = call.sizes
        rows = self.probe.positions(self.piece, windows, length)
        in_decoder = "decoder" in name
        real = self.probe.real_tokens(self.piece, windows, length, decoder=in_decoder)
        real_keys = self.probe.real_tokens(self.piece, windows, keys, decoder=in_decoder and layer.kind != "cross")
        first = rows.new_zeros(windows) if real_keys is None else real_keys.int().argmax(1)
        start = 0
        for piece in call.pieces(rows):
            logits = call.logits(piece)
            if real is not None:
                logits.masked_fill_(~real.take_along_dim(piece, 1)[:, None, :, None], -math.inf)
            seen = Rows(call.weights(logits), logits, piece, first, layer.kind != "cross")
            self._add(layer, seen, start)
            start += piece.shape[1]
        if self.piece.start == 0:
            self._keep_pattern(name, call)

    def _learn(self, name: str, call: AttentionCall) -> SeenLayer:
        windows, heads, length, keys = call.sizes
        sample = self.probe.positions(self.piece, windows, length)[:, :16]
        cross = call.is_cross or "cross" in name.lower()
        kind: Kind = "cross" if cross else call.kind(call.logits(sample), sample)
        return SeenLayer(name, kind, heads, length, keys)

    def _add(self, layer: SeenLayer, seen: Rows, start: int) -> None:
        """Add the rows of a piece; `start` counts the rows of each window before them."""
        sums = self.sums.get(layer.name)
        if sums is None:
            shape = len(self.record), layer.heads
            zeros = torch.zeros(shape, dtype=torch.float64, device=seen.weights.device)
            self.sums[layer.name] = sums = LayerSums(
                torch.stack(
                    [z.fill_(-math.inf) if q.reduction == "max" else z for q, z in zip(self.record, zeros, strict=True)]
                ),
                zeros.clone().zero_(),
                torch.zeros((), dtype=torch.bool, device=zeros.device),
            )
        share = seen.weights.shape[0] // (self.piece.windows + self.piece.repeated)
        own = self.piece.windows * max(1, share)
        probe = _part(seen, slice(own))
        samples = {"probe": probe, "followed": self._followed(layer, probe, start)}
        if self.piece.repeated and layer.kind != "cross":
            tokens = self.probe.repeated_tokens(layer.keys, self.piece.repeated)
            samples["repeated"] = _part(seen, slice(own, None), tokens)
        sums.is_bad |= ~(probe.logits.amax() < math.inf)
        for i, quantity in enumerate(self.record):
            rows = samples.get(quantity.sample)
            if rows is None or not rows.weights.numel():
                continue
            values = quantity.compute(rows)
            counts = ~values.isnan()
            if quantity.reduction == "max":
                largest = values.masked_fill(~counts, -math.inf).amax((0, 2)).double()
                sums.totals[i] = torch.maximum(sums.totals[i], largest)
            else:
                sums.totals[i] += values.nan_to_num(0.0).sum((0, 2), dtype=torch.float64)
            sums.counts[i] += counts.sum((0, 2))

    def _followed(self, layer: SeenLayer, seen: Rows, start: int) -> Rows | None:
        """The rows that are followed, with their weights at the look before, which these replace."""
        if not self.piece.follow:
            return None
        windows, heads, _, keys = seen.weights.shape
        share = windows // self.piece.windows
        if layer.before is None:
            total = self.probe.windows * share
            rows = self.probe.positions(self.piece, windows, layer.queries).shape[1]
            layers = max(1, len(self.layers))
            most = max(1, FOLLOWED // (layers * total * heads * keys))
            layer.before = seen.weights.new_empty(total, heads, min(rows, most), keys)
        number = max(0, min(layer.before.shape[2] - start, seen.weights.shape[2]))
        if not number:
            return None
        first = self.piece.start * share
        place = layer.before[first : first + windows, :, start : start + number]
        now = _part(seen, slice(None), rows=number)
        before = place.clone() if layer.has_before else None
        place.copy_(now.weights)
        return Rows(now.weights, now.logits, now.positions, now.first, now.is_self, before)

    def _keep_pattern(self, name: str, call: AttentionCall) -> None:
        _, _, length, keys = call.sizes
        shown = min(SHOWN, length)
        rows = torch.arange(shown, device=call.query.device)[None]
        mask = call.mask[:1] if call.mask is not None and call.mask.shape[0] > 1 else call.mask
        window = AttentionCall(**{**call.__dict__, "query": call.query[:1], "key": call.key[:1], "mask": mask})
        self.sums[name].pattern = window.weights(window.logits(rows))[0, :, :, : min(SHOWN, keys)]

    def _check(self, name: str, call: AttentionCall, output: Tensor) -> None:
        """How far the output that the weights give is from the model's own."""
        windows, _, length, _ = call.sizes
        rows = self.probe.positions(self.piece, windows, length)[:, :16]
        returned = output.reshape(*call.query.shape[:3], -1).take_along_dim(rows[:, None, :, None], 2).float()
        assert call.value is not None
        largest = call.value.float().abs().amax().clamp(min=1e-30)
        difference = (call.output(rows) - returned).abs().nan_to_num(0.0).amax()
        self.layers[name].error = float(difference / largest)


def _part(seen: Rows, windows: slice, tokens: Tensor | None = None, rows: int | None = None) -> Rows:
    return Rows(
        seen.weights[windows, :, :rows],
        seen.logits[windows, :, :rows],
        seen.positions[windows, :rows],
        seen.first[windows],
        seen.is_self,
        tokens=tokens,
    )


def fused_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[AttentionCall, float]:
    """A call of `scaled_dot_product_attention`, and its dropout."""
    width = query.shape[-1] ** -0.5 if scale is None else scale
    mask = attn_mask
    if mask is not None:
        if hasattr(mask, "_materialize"):  # a bias that torch keeps as a rule
            mask = mask._materialize(query.device)
        mask = mask[(None,) * (4 - mask.ndim)] if mask.ndim < 4 else mask
    return AttentionCall(query, key, value, float(width), mask, is_causal), dropout_p


def with_heads(call: AttentionCall, windows: int) -> AttentionCall:
    """A call whose tensors do not have the axes window, head, token, channel, given them.

    With three axes the first holds windows and heads, as older models have it, or windows alone; with more, all between
    the first and the last two are heads.
    """
    query, key, value = call.query, call.key, call.value
    assert value is not None
    if query.ndim == 2:
        query, key, value = query[None], key[None], value[None]
    if query.ndim == 3:
        heads = query.shape[0] // windows if query.shape[0] % windows == 0 else 1
        query, key, value = (t.unflatten(0, (-1, heads)) for t in (query, key, value))
        mask = call.mask
        if mask is not None and mask.shape[1] == query.shape[0] * heads > 1:
            mask = mask[0].unflatten(0, (-1, heads))
    else:
        mask = call.mask
        leading = query.shape[:-2]
        if mask is not None and mask.ndim > 2:
            mask = mask.expand(*leading, *mask.shape[-2:]).flatten(1, -3)
        query, key, value = (t.flatten(1, -3) for t in (query, key, value))
    return AttentionCall(**{**call.__dict__, "query": query, "key": key, "value": value, "mask": mask})
