"""A torch function mode that sees attention while a model computes it.

Every call of a torch function passes through the mode, however it was reached, and goes on unchanged.  Fast paths of
torch's own layers step aside under such a mode, so that their attention is seen as well.  The module that attends is
the innermost module of the model on Python's stack, which needs no hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.overrides import TorchFunctionMode

from scansnap.monitor.calls import AttentionCall, ProductCall, ScoredCall
from scansnap.monitor.chosen_rows import ChosenRows
from scansnap.monitor.flex import FLEX, flex_call, flex_result
from scansnap.monitor.multi_head import multi_head_call, multi_head_rows

SOFTMAX = (functional.softmax, torch.softmax, torch.Tensor.softmax)

OUTSIDE = "outside of modules"
"""The name of attention that no module of the model computes."""

Returned = Callable[[Any, ChosenRows], Tensor]
"""From what the model's attention returned, what it says for some rows."""

Expected = Callable[[ChosenRows], Tensor]
"""What the weights make it say."""


class AllSeen(BaseException):
    """Ends a forward pass after its last attention."""


class Receiver(Protocol):
    """What a sight tells of the attention that it sees."""

    learns: bool

    def add(self, name: str, call: AttentionCall) -> None:
        """Take a call by the module of this name."""

    def note_softmax(self, name: str, rows: int, keys: int) -> None:
        """Take note of a softmax that was not announced; only while it learns."""

    def check(self, name: str, returned: Expected, expected: Expected) -> None:
        """Compare what the model's attention returned with what is expected, for some rows."""

    def is_complete(self) -> bool:
        """Whether nothing more is to be seen in this pass."""


@dataclass(frozen=True)
class Announced:
    """Attention that is written by hand: what its module's softmax is given, or queries and keys from its input.

    With a function for these, which may also return what is added to the logits, nothing that the module calls counts.
    """

    module: nn.Module
    queries_and_keys: Callable[..., tuple[Any, ...]] | None = None
    scale: float | None = None
    is_causal: bool = False


class Sight(TorchFunctionMode):
    """Sees the attention of one forward pass over so many windows."""

    def __init__(
        self, names: Mapping[int, str], windows: int, announced: Sequence[Announced], receiver: Receiver
    ) -> None:
        super().__init__()
        self._names, self._windows, self._receiver = names, windows, receiver
        self._announced = announced
        self._by_softmax = {id(a.module) for a in announced if a.queries_and_keys is None}
        self._by_input = {id(a.module) for a in announced if a.queries_and_keys is not None}
        self._calls: dict[str, int] = {}
        self._is_busy = False
        self._hooks = ExitStack()
        self._views: dict[Any, Callable[..., Any]] = {  # methods of the class: bound ones would hold this sight
            functional.scaled_dot_product_attention: Sight._see_fused,
            functional.multi_head_attention_forward: Sight._see_multi_head,
            FLEX: Sight._see_flex,
        }
        if self._by_softmax or receiver.learns:
            self._views |= dict.fromkeys(SOFTMAX, Sight._see_softmax)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        view = None if self._is_busy else self._views.get(func)
        if view is None or (self._by_input and any(id(m) in self._by_input for m in self._modules())):
            return func(*args, **kwargs)
        return view(self, func, args, kwargs)

    def __enter__(self) -> Sight:
        for announced in self._announced:
            if announced.queries_and_keys is not None:
                handle = announced.module.register_forward_pre_hook(self._hook(announced), with_kwargs=True)
                self._hooks.callback(handle.remove)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.close()
        super().__exit__(*error)

    def see(
        self,
        module: nn.Module | None,
        call: AttentionCall,
        run: Callable[[], Any],
        *,
        returned: Returned | None = None,
        expected: Expected | None = None,
    ) -> Any:
        """Tell of a call, and return what the model computes with it.

        `returned` and `expected`, where given, say what to compare: what was returned for some rows, and what the
        weights make it.
        """
        name = self._layer_name(module)
        was_busy, self._is_busy = self._is_busy, True
        try:
            self._receiver.add(name, call)
            if self._receiver.is_complete():
                raise AllSeen
            result = run()
            if returned is not None and expected is not None:
                self._receiver.check(name, lambda rows: returned(result, rows), expected)
            return result
        finally:
            self._is_busy = was_busy

    def _see_fused(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call, dropout = fused_call(*args, **kwargs)
        shaped = with_heads(call, self._windows)

        def returned(result: Tensor, rows: ChosenRows) -> Tensor:
            return rows.of(_padded(result)[0].reshape(*shaped.sizes[:3], -1))

        return self.see(
            next(self._modules(), None),
            shaped,
            lambda: func(*args, **kwargs),
            returned=None if dropout else returned,
            expected=shaped.output,
        )

    def _see_multi_head(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call, expected = multi_head_call(*args, **kwargs)
        return self.see(
            next(self._modules(), None),
            call,
            lambda: func(*args, **kwargs),
            returned=multi_head_rows,
            expected=expected,
        )

    def _see_flex(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call = flex_call(*as_autocast(*args[:3]), *args[3:], **kwargs)
        return self.see(next(self._modules(), None), call, lambda: flex_result(call))

    def _see_softmax(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        scores = args[0] if args else kwargs["input"]
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if scores.is_nested or scores.ndim < 3 or dim not in (-1, scores.ndim - 1):
            return func(*args, **kwargs)
        module = next((m for m in self._modules() if id(m) in self._by_softmax), None)
        if module is None:
            if self._receiver.learns:
                owner = next((m for m in self._modules() if not isinstance(m, nn.Softmax)), None)
                self._receiver.note_softmax(self._names.get(id(owner), OUTSIDE), *scores.shape[-2:])
            return func(*args, **kwargs)
        call = ScoredCall(_with_heads(scores, self._windows))
        return self.see(module, call, lambda: func(*args, **kwargs))

    def _hook(self, announced: Announced) -> Callable[..., None]:
        def tell(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            assert announced.queries_and_keys is not None
            was_busy, self._is_busy = self._is_busy, True
            try:
                query, key, *added = announced.queries_and_keys(module, *args, **kwargs)
            finally:
                self._is_busy = was_busy
            bias = added[0] if added else None
            call, _ = fused_call(query, key, key, bias, 0.0, announced.is_causal, announced.scale)
            self.see(module, with_heads(call, self._windows), lambda: None)

        return tell

    def _modules(self) -> Iterator[nn.Module]:
        """The model's modules on the stack, innermost first."""
        frame = sys._getframe(2)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if id(owner) in self._names and isinstance(owner, nn.Module):
                yield owner
            frame = frame.f_back  # type: ignore[assignment]

    def _layer_name(self, module: nn.Module | None) -> str:
        """The module's name, with the number of the call if it has attended before in this pass."""
        name = self._names.get(id(module), OUTSIDE)
        self._calls[name] = number = self._calls.get(name, 0) + 1
        return name if number == 1 else f"{name} (call {number})"


def fused_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[ProductCall, float]:
    """A call of `scaled_dot_product_attention`, and its dropout."""
    if hasattr(attn_mask, "_materialize"):  # a causal bias that torch keeps as a rule
        attn_mask = attn_mask._materialize(query.device)  # type: ignore[union-attr]
    if query.is_nested:
        (query, is_query), (key, is_key), (value, _) = map(_padded, (query, key, value))
        attn_mask = (is_query[:, :, None] & is_key[:, None])[:, None]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    query, key, value = as_autocast(query, key, value)
    return ProductCall(query, key, value, scale, attn_mask, is_causal=is_causal), dropout_p


def _padded(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """A ragged tensor (B, H, T, d) filled up with zeros, and which of its tokens (B, T) are its own."""
    if not tensor.is_nested:
        return tensor, torch.ones(tensor.shape[0], tensor.shape[-2], dtype=torch.bool, device=tensor.device)
    windows = [window.transpose(0, 1) for window in tensor.unbind()]
    is_own = [torch.ones(len(window), dtype=torch.bool, device=tensor.device) for window in windows]
    return pad_sequence(windows, batch_first=True).transpose(1, 2), pad_sequence(is_own, batch_first=True)


def as_autocast(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What autocast makes of the tensors that a fused kernel is given."""
    if not torch.is_autocast_enabled(query.device.type):
        return query, key, value
    dtype = torch.get_autocast_dtype(query.device.type)
    return query.to(dtype), key.to(dtype), value.to(dtype)


def with_heads(call: ProductCall, windows: int) -> ProductCall:
    """A call with the axes window, head, token and channel."""
    mask, leading = call.mask, call.query.shape[:-2]
    if mask is not None and mask.ndim > 2 and len(leading) != 2:
        mask = _with_heads(mask.expand(*leading, *mask.shape[-2:]), windows)
    elif mask is not None:
        mask = mask[(None,) * (4 - mask.ndim)]
    query, key = _with_heads(call.query, windows), _with_heads(call.key, windows)
    value = None if call.value is None else _with_heads(call.value, windows)
    return replace(call, query=query, key=key, value=value, mask=mask)


def _with_heads(tensor: Tensor, windows: int) -> Tensor:
    """A tensor with four axes, of which the first two are windows and heads.

    Of three axes the first holds windows and the heads of each, as older models have it, or windows alone; of more than
    four, all between the first and the last two are heads.
    """
    if tensor.ndim == 4:
        return tensor
    if tensor.ndim > 4:
        return tensor.flatten(1, -3)
    if tensor.ndim == 2:
        return tensor[None, None]
    heads, rest = divmod(tensor.shape[0], windows)
    return tensor.unflatten(0, (-1, max(heads, 1) if not rest else 1))
