"""Which attention of a model is captured, how, and whether the capture is right.

A torch function mode receives every call of a torch function, however it was reached, and passes it on unchanged.  Fast
paths of torch's own layers are switched off under such a mode, so that their attention is captured as well.  The module
that attends is the innermost module of the model on Python's stack, which needs no hooks.

Calls of torch's attention functions are captured wherever they are made.  Attention that a model computes itself is
read from the softmax that it takes, in modules that the user announced and in those named for attention, if its shape
is that of queries by keys.  So a Hugging Face model is captured as it is with its attention "eager", "sdpa" or
"flex_attention".  Other implementations are fused kernels that do not expose the weights: during a snapshot the
configuration names "sdpa" instead, or "eager" where that gives other numbers.  Key-value caches are left out unless
that gives other numbers: a Hugging Face model separates packed documents only without a cache.

The first pass is checked: the model runs once untouched, and once with some rows of each attention replaced by what the
captured weights give.  If a module then returns something else, the capture is wrong and is refused.  Queries and keys
that a function of the user returns cannot be checked so, because the values are not known.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode

from scansnap.monitor.attention import AttentionCall, ScoredCall, put_rows
from scansnap.monitor.isolation import named_modules
from scansnap.monitor.projections import shows_projections
from scansnap.monitor.torch_attention import (
    FLEX,
    as_autocast,
    flex_call,
    flex_output,
    fused_call,
    in_four_axes,
    multi_head_call,
    put_multi_head,
    split_heads,
)
from scansnap.runtime.errors import InputError
from scansnap.validation.checks import type_name

if TYPE_CHECKING:
    from scansnap.monitor.snapshot import SnapshotPass

SOFTMAX_FUNCTIONS = (
    functional.softmax,
    torch.softmax,
    torch.Tensor.softmax,
    functional.log_softmax,
    torch.log_softmax,
    torch.Tensor.log_softmax,
)

LOG_SOFTMAX_FUNCTIONS = SOFTMAX_FUNCTIONS[3:]

PRODUCT_NAMES = ("matmul", "__matmul__", "bmm", "einsum", "linear")
"""Functions that give values the weights that they are multiplied by."""

ATTENTION_CLASS_NAME = re.compile(r"attention|attn|mha$", re.IGNORECASE)
"""Names of classes that attend."""

CROSS_ARGUMENTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "memory", "context")
"""Names of a forward function's arguments that hold what the keys are made of, where that is not the input."""

SINK_PARAMETERS = ("sinks", "sink", "attention_sink_bias")
"""Names of the parameter with the logit of a learned sink for each head."""

OUTSIDE_NAME = "outside of modules"
"""The name of attention that no module of the model computes."""

MAX_OUTPUT_DIFFERENCES = {
    torch.bfloat16: 0.1,
    torch.float16: 2e-2,
    torch.float32: 2e-2 if torch.cuda.is_available() else 1e-3,  # GPUs may use TF32
    torch.float64: 1e-6,
}
"""By how much outputs may differ, relative to the largest: rounding grows from layer to layer."""

CallType = TypeVar("CallType", bound=AttentionCall)

PutRows = Callable[[Any, Tensor], Any]
"""From what the model's attention returned, the same with some rows replaced by what the weights give."""


class AllCaptured(BaseException):
    """Ends a forward pass after its last attention."""


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
    """Captures the attention of one forward pass over `windows` windows.

    `lengths` are the numbers of tokens that attention may be among; `settings` are given to the configurations of a
    Hugging Face model.  `found` are the modules whose softmax is captured without being announced, which the first pass
    finds; `unread` are those that took a softmax like that of attention which was not captured, and `changed` those
    that changed their weights after the softmax.
    """

    def __init__(
        self,
        model: nn.Module,
        windows: int,
        announced: Sequence[AnnouncedModule],
        receiver: SnapshotPass,
        *,
        found: Mapping[str, nn.Module] | None = None,
        lengths: set[int] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._model, self._windows, self._receiver = model, windows, receiver
        self._lengths, self._settings = set(lengths or ()), settings or {}
        self._names = {id(module): name for name, module in named_modules(model).items()}
        self._announced = announced
        self._by_softmax = {id(a.module) for a in announced if a.queries_and_keys is None}
        self._by_input = {id(a.module) for a in announced if a.queries_and_keys is not None}
        self.found = dict(found or {})
        self.unread: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self._weights: tuple[str, Tensor, Tensor] | None = None  # the last that softmax gave: where, and a copy
        self._calls: dict[str, int] = {}
        self._is_busy = False
        self._cleanup = ExitStack()
        self._handlers: dict[Any, Callable[..., Any]] = {  # methods of the class: bound ones would hold this object
            functional.scaled_dot_product_attention: Capture._capture_fused,
            functional.multi_head_attention_forward: Capture._capture_multi_head,
            FLEX: Capture._capture_flex,
        }
        if self._by_softmax or self.found or receiver.is_first:
            self._handlers |= dict.fromkeys(SOFTMAX_FUNCTIONS, Capture._capture_softmax)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = None if self._is_busy else self._handlers.get(func)
        if handler is None or (self._by_input and any(id(m) in self._by_input for m, _ in self._modules())):
            result = func(*args, **kwargs)
            self._follow_weights(func, args, result)
            return result
        return handler(self, func, args, kwargs)

    def _follow_weights(self, func: Callable[..., Any], args: Sequence[Any], result: Any) -> None:
        """Note a module that changes the weights that its softmax gave, other than by rounding."""
        if self._weights is None or not isinstance(result, Tensor) or getattr(func, "__name__", "") in PRODUCT_NAMES:
            return
        name, weights, copy = self._weights
        if result.shape != copy.shape or not result.is_floating_point() or not any(arg is weights for arg in args):
            return
        if torch.allclose(result.to(copy).nan_to_num(), copy, rtol=0, atol=0.01):
            self._weights = name, result, copy
        else:
            self.changed[name] = None

    def __enter__(self) -> Capture:
        self._cleanup.enter_context(configured(self._model, self._settings))
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
        frame: FrameType | None,
        call: CallType,
        run: Callable[[], Any],
        put: PutRows | None = None,
    ) -> Any:
        """Give a call to the receiver, and return what the model computes with it, in the first pass with `put`."""
        name = self._layer_name(module)
        hidden = next(iter(_tensor_arguments(frame).values()), None)
        if hidden is not None and hidden.ndim == 3 and len(hidden) == call.sizes[0]:
            call = replace(call, hidden=hidden)  # type: ignore[type-var]
        was_busy, self._is_busy = self._is_busy, True
        try:
            self._receiver.add(name, call)
            if self._receiver.is_complete():
                raise AllCaptured
            result = run()
            return put(result, self._receiver.checked_rows(name)) if put and self._receiver.is_first else result
        finally:
            self._is_busy = was_busy

    def _capture_fused(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        module, frame = next(self._modules(), (None, None))
        call, dropout = fused_call(*args, **kwargs)
        shaped = replace(in_four_axes(call, self._windows), is_cross=_is_cross(module, frame))

        def put(result: Tensor, rows: Tensor) -> Tensor:
            in_axes = result.reshape(*shaped.sizes[:3], -1)
            like = torch.empty_like(result)  # with the strides of the result
            return like.copy_(put_rows(in_axes, rows, shaped.output(rows)).reshape(result.shape))

        query = args[0] if args else kwargs["query"]
        return self.record(
            module, frame, shaped, lambda: func(*args, **kwargs), None if dropout or query.is_nested else put
        )

    def _capture_multi_head(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call, expected = multi_head_call(*args, **kwargs)
        module, frame = next(self._modules(), (None, None))
        return self.record(
            module,
            frame,
            call,
            lambda: func(*args, **kwargs),
            lambda result, rows: put_multi_head(result, rows, expected(rows)),
        )

    def _capture_flex(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call = flex_call(*as_autocast(*args[:3]), *args[3:], **kwargs)
        module, frame = next(self._modules(), (None, None))
        return self.record(module, frame, call, lambda: flex_output(call))

    def _capture_softmax(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        scores = args[0] if args else kwargs["input"]
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if scores.is_nested or scores.ndim < 3 or dim not in (-1, scores.ndim - 1):
            return func(*args, **kwargs)
        stack = [(m, frame) for m, frame in self._modules() if not isinstance(m, nn.Softmax | nn.LogSoftmax)]
        announced = next(((m, frame) for m, frame in stack if id(m) in self._by_softmax), None)
        module, frame = announced or next(iter(stack), (None, None))
        name = self._names.get(id(module), OUTSIDE_NAME)
        if announced is None and not self._receiver.is_first and name not in self.found:
            return func(*args, **kwargs)
        call = self._scored(scores, module, frame)
        if announced is None:
            is_named = ATTENTION_CLASS_NAME.search(type(module).__name__) is not None
            _, heads, queries, _ = call.sizes
            is_of_one_token = not is_named and heads in self._lengths and queries not in self._lengths
            if is_of_one_token or not self._is_of_tokens(call, scores.ndim):
                return func(*args, **kwargs)
            if module is None or not is_named:
                self.unread[name] = None
                return func(*args, **kwargs)
            self.found[name] = module
        result = self.record(module, frame, call, lambda: func(*args, **kwargs))
        if announced is None and self._receiver.is_first and func not in LOG_SOFTMAX_FUNCTIONS:
            self._weights = name, result, result.nan_to_num()
        return result

    def _scored(self, scores: Tensor, module: nn.Module | None, frame: FrameType | None) -> ScoredCall:
        """The call of which these are the scores; those of a learned sink are a last column without a key.

        A model may have subtracted the largest score of each row, which the logit of the sink shows.
        """
        scores = split_heads(scores, self._windows)
        heads, rows = scores.shape[1:3]
        keys = scores.shape[3]
        if rows != keys and (heads == keys or (rows not in self._lengths and heads in self._lengths)):  # (B, T, H, S)
            scores, heads = scores.transpose(1, 2), rows
        parameters = (getattr(module, name, None) for name in SINK_PARAMETERS)
        sink = next((p.detach() for p in parameters if isinstance(p, Tensor) and p.numel() == heads), None)
        is_cross = _is_cross(module, frame)
        if sink is None or scores.shape[3] - 1 not in {scores.shape[2], *self._lengths}:
            return ScoredCall(scores, is_cross)
        sink = sink.flatten()
        scores = scores + (sink[:, None, None] - scores[..., -1:])
        return ScoredCall(scores[..., :-1], is_cross, sink)

    def _is_of_tokens(self, call: ScoredCall, axes: int) -> bool:
        """Whether scores are those of queries by keys."""
        _, _, queries, keys = call.sizes
        if axes > 4 or keys < 2 or not (queries == keys or {queries, keys} <= self._lengths):
            return False
        self._lengths |= {queries, keys}
        return True

    def _hook(self, announced: AnnouncedModule) -> Callable[..., None]:
        def capture_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            assert announced.queries_and_keys is not None
            was_busy, self._is_busy = self._is_busy, True
            try:
                returned = announced.queries_and_keys(module, *args, **kwargs)
            finally:
                self._is_busy = was_busy
            if (
                not isinstance(returned, tuple | list)
                or len(returned) not in (2, 3)
                or not all(isinstance(tensor, Tensor) for tensor in returned[:2])
            ):
                raise InputError(
                    f"queries_and_keys returned {type_name(returned)} for {type(module).__name__}: return a tuple of "
                    "two tensors, queries and keys, and a mask or bias if need be."
                )
            query, key, *added = returned
            bias = added[0] if added else None
            call, _ = fused_call(query, key, key, bias, 0.0, announced.is_causal, announced.scale)
            self.record(module, None, replace(in_four_axes(call, self._windows), value=None), lambda: None)

        return capture_input

    def _modules(self) -> Iterator[tuple[nn.Module, FrameType]]:
        """The model's modules on the stack with their frames, innermost first."""
        frame = sys._getframe(2)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if id(owner) in self._names and isinstance(owner, nn.Module):
                yield owner, frame
            frame = frame.f_back  # type: ignore[assignment]

    def _layer_name(self, module: nn.Module | None) -> str:
        """The module's name, with the number of the call if it has attended before in this pass."""
        name = self._names.get(id(module), OUTSIDE_NAME)
        self._calls[name] = number = self._calls.get(name, 0) + 1
        return name if number == 1 else f"{name} (call {number})"


def _is_cross(module: nn.Module | None, frame: FrameType | None) -> bool:
    """Whether keys are made of something else than queries, by what the module's function was called with."""
    if getattr(module, "is_cross_attention", False) or getattr(module, "encoder_decoder_attention", False):
        return True
    tensors = _tensor_arguments(frame)
    first = next(iter(tensors.values()), None)
    return any(tensor is not first for name, tensor in tensors.items() if name in CROSS_ARGUMENTS)


def _tensor_arguments(frame: FrameType | None) -> dict[str, Tensor]:
    """The tensors that a method was called with, by the names of its arguments."""
    if frame is None:
        return {}
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return {name: values[name] for name in names if isinstance(values.get(name), Tensor)}


READABLE_KERNELS = (None, "eager", "sdpa", "flex_attention")
"""Implementations of attention in Hugging Face configurations that are captured as they are."""


KERNEL_KEY, CACHE_KEY = "_attn_implementation_internal", "use_cache"
"""The attributes of Hugging Face configurations with the implementation of attention, and whether to make a cache."""


@contextmanager
def configured(model: nn.Module, settings: Mapping[str, Any]) -> Iterator[None]:
    """Give settings to the configurations of a Hugging Face model; an implementation only in place of a kernel."""
    with ExitStack() as stack:
        for configuration in configurations(model):
            for name, value in settings.items():
                if name in configuration and (name != KERNEL_KEY or configuration[KERNEL_KEY] not in READABLE_KERNELS):
                    stack.callback(configuration.__setitem__, name, configuration[name])
                    configuration[name] = value
        yield


def settings_in_training(model: nn.Module) -> dict[str, Any]:
    """What a Hugging Face model sets itself while it trains: no cache where it recomputes activations."""
    return {CACHE_KEY: False} if any(getattr(m, "gradient_checkpointing", False) for m in model.modules()) else {}


def settings_to_try(model: nn.Module) -> list[dict[str, Any]]:
    """The settings under which attention may be captured, the cheapest first."""
    before = configurations(model)
    uses_kernel = any(configuration[KERNEL_KEY] not in READABLE_KERNELS for configuration in before)
    uses_cache = any(configuration.get(CACHE_KEY) for configuration in before)
    kernels: list[dict[str, Any]] = [{KERNEL_KEY: "sdpa"}, {KERNEL_KEY: "eager"}] if uses_kernel else [{}]
    caches = [{CACHE_KEY: False}] if uses_cache else []
    caches += [] if caches and settings_in_training(model) else [{}]
    return [kernel | cache for kernel in kernels for cache in caches]


def configurations(model: nn.Module) -> list[dict[str, Any]]:
    """The contents of the configurations by which modules look up their attention, each once."""
    if "transformers" not in sys.modules:
        return []
    objects = {id(c): c for c in (module.__dict__.get("config") for module in model.modules()) if c is not None}
    contents = [getattr(c, "__dict__", {}) for c in objects.values()]
    return [content for content in contents if KERNEL_KEY in content]


class OutputRecorder:
    """Keeps what each module returns during a pass, projected to one number for each token."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = named_modules(model)
        self._names = {id(module): name for name, module in self._modules.items()}
        self._calls: dict[str, int] = {}
        self.outputs: dict[tuple[str, int], list[tuple[Tensor, Tensor]]] = {}  # by module and number of the call

    def __enter__(self) -> OutputRecorder:
        self._handle = register_module_forward_hook(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()

    def _note(self, module: nn.Module, args: Any, output: Any) -> None:
        name = self._names.get(id(module))
        if name is None:
            return
        self._calls[name] = number = self._calls.get(name, 0) + 1
        values = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple) else [output]
        self.outputs[name, number] = [
            _projected(value.detach())
            for value in map(own_part, values)
            if isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1 and not value.is_nested
        ]

    def first_difference(self, captured: OutputRecorder) -> tuple[str, float] | None:
        """The first module that returned something else in a captured pass, and by how much; None if all agree."""
        for key, outputs in captured.outputs.items():
            for (theirs, size), (ours, _) in zip(self.outputs.get(key, []), outputs, strict=False):
                if theirs.shape == ours.shape and theirs.numel():
                    are_nan = theirs.isnan() & ours.isnan()
                    error = float(((theirs - ours).abs() / size).masked_fill(are_nan, 0.0).amax())
                    if not error <= MAX_OUTPUT_DIFFERENCES.get(theirs.dtype, 1e-3):
                        return key[0], error
        return None

    def attention_modules(self) -> list[str]:
        """The modules that ran, have a name or projections as attention does, and hold no other such module."""
        ran = {name: self._modules[name] for name, _ in self.outputs}
        named = [n for n, m in ran.items() if ATTENTION_CLASS_NAME.search(type(m).__name__) or shows_projections(m)]
        return [name for name in named if not any(other.startswith(f"{name}.") for other in named)]


def own_part(value: Any) -> Any:
    """What this process holds of a value that several share; any other value as it is."""
    return value.to_local() if hasattr(value, "to_local") else value


def _projected(output: Tensor) -> tuple[Tensor, Tensor]:
    """One number for each token, and the size of such numbers."""
    direction = torch.cos(torch.arange(output.shape[-1], device=output.device)).to(output.dtype)
    largest = output.nan_to_num(0.0, 0.0, 0.0).abs().amax() if output.numel() else output.new_zeros(())
    return output @ direction, (largest.float() * output.shape[-1] ** 0.5).clamp(min=1e-30)
