"""Which attention of a model is captured, and how.

A torch function mode receives every call of a torch function, however it was reached, and passes it on unchanged.  Fast
paths of torch's own layers are switched off under such a mode, so that their attention is captured as well.  The module
that attends is the innermost module of the model on Python's stack, which needs no hooks.

Hugging Face models look up attention, and the mask that goes with it, by a name in their configuration.  During a
snapshot the name is that of a function that passes the queries and keys on and then computes the same attention, with
the boolean masks of their `sdpa`; afterwards the name is the one before.  What `sdpa` does not do (soft-capping, sinks)
is computed here in chunks, so that T x T weights are never formed.  No key-value cache is made during a snapshot.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from scansnap.monitor.attention import AttentionCall, ProductCall, ScoredCall, every_row, take_rows
from scansnap.monitor.isolation import named_modules
from scansnap.monitor.torch_attention import (
    FLEX,
    as_autocast,
    flex_call,
    flex_output,
    fused_call,
    in_four_axes,
    multi_head_call,
    multi_head_rows,
    padded,
    split_heads,
)

SOFTMAX = (functional.softmax, torch.softmax, torch.Tensor.softmax)

OUTSIDE = "outside of modules"
"""The name of attention that no module of the model computes."""

Returned = Callable[[Any, Tensor], Tensor]
"""From what the model's attention returned, what it says for some rows."""

Expected = Callable[[Tensor], Tensor]
"""What the weights make it say."""


class AllCaptured(BaseException):
    """Ends a forward pass after its last attention."""


class Receiver(Protocol):
    """What receives the attention that is captured."""

    is_first: bool  # whether this is the pass that finds the layers

    def add(self, name: str, call: AttentionCall) -> None:
        """Take a call by the module of this name."""

    def note_softmax(self, name: str, rows: int, keys: int) -> None:
        """Take note of a softmax that was not announced; only in the first pass."""

    def check(self, name: str, returned: Expected, expected: Expected) -> None:
        """Compare what the model's attention returned with what is expected, for some rows."""

    def is_complete(self) -> bool:
        """Whether nothing more is to be captured in this pass."""


@dataclass(frozen=True)
class AnnouncedModule:
    """Attention that is written by hand: what its module's softmax is given, or queries and keys from its input.

    With a function for these, which may also return what is added to the logits, nothing that the module calls counts.
    """

    module: nn.Module
    queries_and_keys: Callable[..., tuple[Any, ...]] | None = None
    scale: float | None = None
    is_causal: bool = False


class Capture(TorchFunctionMode):
    """Captures the attention of one forward pass over `windows` windows."""

    def __init__(
        self, model: nn.Module, windows: int, announced: Sequence[AnnouncedModule], receiver: Receiver
    ) -> None:
        super().__init__()
        self._model, self._windows, self._receiver = model, windows, receiver
        self._names = {id(module): name for name, module in named_modules(model).items()}
        self._announced = announced
        self._by_softmax = {id(a.module) for a in announced if a.queries_and_keys is None}
        self._by_input = {id(a.module) for a in announced if a.queries_and_keys is not None}
        self._calls: dict[str, int] = {}
        self._is_busy = False
        self._cleanup = ExitStack()
        self._handlers: dict[Any, Callable[..., Any]] = {  # methods of the class: bound ones would hold this object
            functional.scaled_dot_product_attention: Capture._capture_fused,
            functional.multi_head_attention_forward: Capture._capture_multi_head,
            FLEX: Capture._capture_flex,
        }
        if self._by_softmax or receiver.is_first:
            self._handlers |= dict.fromkeys(SOFTMAX, Capture._capture_softmax)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = None if self._is_busy else self._handlers.get(func)
        if handler is None or (self._by_input and any(id(m) in self._by_input for m in self._modules())):
            return func(*args, **kwargs)
        return handler(self, func, args, kwargs)

    def __enter__(self) -> Capture:
        self._cleanup.enter_context(_hugging_face(self._model, self))
        for announced in self._announced:
            if announced.queries_and_keys is not None:
                handle = announced.module.register_forward_pre_hook(self._hook(announced), with_kwargs=True)
                self._cleanup.callback(handle.remove)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._cleanup.close()

    def record(
        self,
        module: nn.Module | None,
        call: AttentionCall,
        run: Callable[[], Any],
        *,
        returned: Returned | None = None,
        expected: Expected | None = None,
    ) -> Any:
        """Give a call to the receiver, and return what the model computes with it.

        `returned` and `expected`, where given, say what to compare: what was returned for some rows, and what the
        weights make it.
        """
        name = self._layer_name(module)
        was_busy, self._is_busy = self._is_busy, True
        try:
            self._receiver.add(name, call)
            if self._receiver.is_complete():
                raise AllCaptured
            result = run()
            if returned is not None and expected is not None:
                self._receiver.check(name, lambda rows: returned(result, rows), expected)
            return result
        finally:
            self._is_busy = was_busy

    def _capture_fused(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call, dropout = fused_call(*args, **kwargs)
        shaped = in_four_axes(call, self._windows)

        def returned(result: Tensor, rows: Tensor) -> Tensor:
            return take_rows(padded(result)[0].reshape(*shaped.sizes[:3], -1), rows)

        return self.record(
            next(self._modules(), None),
            shaped,
            lambda: func(*args, **kwargs),
            returned=None if dropout else returned,
            expected=shaped.output,
        )

    def _capture_multi_head(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call, expected = multi_head_call(*args, **kwargs)
        return self.record(
            next(self._modules(), None),
            call,
            lambda: func(*args, **kwargs),
            returned=multi_head_rows,
            expected=expected,
        )

    def _capture_flex(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call = flex_call(*as_autocast(*args[:3]), *args[3:], **kwargs)
        return self.record(next(self._modules(), None), call, lambda: flex_output(call))

    def _capture_softmax(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        scores = args[0] if args else kwargs["input"]
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if scores.is_nested or scores.ndim < 3 or dim not in (-1, scores.ndim - 1):
            return func(*args, **kwargs)
        module = next((m for m in self._modules() if id(m) in self._by_softmax), None)
        if module is None:
            if self._receiver.is_first:
                owner = next((m for m in self._modules() if not isinstance(m, nn.Softmax)), None)
                self._receiver.note_softmax(self._names.get(id(owner), OUTSIDE), *scores.shape[-2:])
            return func(*args, **kwargs)
        call = ScoredCall(split_heads(scores, self._windows))
        return self.record(module, call, lambda: func(*args, **kwargs))

    def _hook(self, announced: AnnouncedModule) -> Callable[..., None]:
        def capture_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            assert announced.queries_and_keys is not None
            was_busy, self._is_busy = self._is_busy, True
            try:
                query, key, *added = announced.queries_and_keys(module, *args, **kwargs)
            finally:
                self._is_busy = was_busy
            bias = added[0] if added else None
            call, _ = fused_call(query, key, key, bias, 0.0, announced.is_causal, announced.scale)
            self.record(module, in_four_axes(call, self._windows), lambda: None)

        return capture_input

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


NAME = "scansnap_watch"
"""The name under which the models find the function."""

CHANGED = {"_attn_implementation_internal": NAME, "use_cache": False}
"""What a configuration says during a snapshot."""

_active: ContextVar[Capture] = ContextVar("the capture that is active")


@contextmanager
def _hugging_face(model: nn.Module, capture: Capture) -> Iterator[None]:
    """Send the attention of a Hugging Face model to `capture`; other models are left alone."""
    configurations = _configurations(model)
    if not configurations:
        yield
        return
    _register()
    before = [(c, name, c.__dict__[name]) for c in configurations for name in CHANGED if name in c.__dict__]
    token = _active.set(capture)
    try:
        for configuration, name, _ in before:
            configuration.__dict__[name] = CHANGED[name]
        yield
    finally:
        for configuration, name, value in before:
            configuration.__dict__[name] = value
        _active.reset(token)


def _configurations(model: nn.Module) -> list[Any]:
    """The configurations by which modules look up their attention, each once."""
    if "transformers" not in sys.modules:
        return []
    objects = {id(c): c for c in (module.__dict__.get("config") for module in model.modules()) if c is not None}
    return [c for c in objects.values() if "_attn_implementation_internal" in getattr(c, "__dict__", {})]


def _register() -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    length = query.shape[2]
    asked = getattr(module, "is_causal", True) if is_causal is None else is_causal
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    call = ProductCall(
        *as_autocast(query, key, value),
        scale,
        mask=attention_mask,
        bias=position_bias,
        is_causal=bool(asked) and attention_mask is None and length > 1,
        softcap=softcap,
        sink=s_aux,
        is_cross=bool(getattr(module, "is_cross_attention", False)),
    )
    rows = every_row(query.shape[0], length, query.device)

    def run() -> Tensor:
        """(B, T, H, e)."""
        if softcap is None and s_aux is None:
            bias: Any = {} if position_bias is None else {"position_bias": position_bias}
            output, _ = sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout=0.0, scaling=scaling, is_causal=is_causal, **bias
            )
            return output
        return call.output(rows).to(call.query.dtype).transpose(1, 2).contiguous()

    def returned(result: Tensor, chosen: Tensor) -> Tensor:
        return take_rows(result.transpose(1, 2), chosen)

    return _active.get().record(module, call, run, returned=returned, expected=call.output), None
