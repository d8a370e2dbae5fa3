"""Compiled functions that only other compiled functions call, which compile faster.

Numba compiles every function as if Python might call it: with two wrappers, down to machine code.  Its caller takes in
what there was before that, and translates it again.  Of the eighty functions of the CPU kernel one is called from
Python.  An inner function stops where its caller takes it in.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import FunctionType
from typing import Any

from numba import njit, typeof
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typed_passes import InlineOverloads, NativeLowering, NopythonRewrites
from numba.core.untyped_passes import (
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    RewriteDynamicRaises,
    WithLifting,
)

from scansnap.runtime.borrowed import Borrowed

BARE = {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
"""Nothing for Python to call, and no counting of references to arrays: whoever calls keeps them."""


GENERAL = True
"""Whether a function serves every setting; the branches that it guards are not compiled where it is false."""


class InnerFunction(CPUDispatcher):
    """A function for compiled code; Python, as in tests, calls it by way of one that is compiled as usual."""

    def __call__(self, *arguments: Any) -> Any:
        return self._outer(*arguments)

    @cached_property
    def _outer(self) -> Any:
        inner = self
        return njit(lambda *arguments: inner(*arguments))


def inner(*, allocates: bool = False, **options: Any) -> Callable[[Callable[..., Any]], InnerFunction]:
    """A decorator like numba's `njit`, for functions that only compiled code calls; few make arrays."""
    stated = BARE | {"_nrt": allocates} | options
    return lambda function: InnerFunction(function, targetoptions=stated, pipeline_class=_InnerCompiler)


def kept(**options: Any) -> Callable[[Callable[..., Any]], CPUDispatcher]:
    """A decorator for functions of named tuples that are called by way of `kept_code.KeptFunction`."""
    return lambda function: CPUDispatcher(function, targetoptions=BARE | options, pipeline_class=_KeptCompiler)


def narrowed(function: CPUDispatcher) -> CPUDispatcher:
    """The function with `GENERAL` false, in it and all that it calls: less to compile, for the settings that remain."""
    copies: dict[Any, Any] = {}

    def copy(whole: Any) -> Any:
        if whole not in copies:
            plain = whole.py_func
            names = {**plain.__globals__, "GENERAL": False}
            twin = FunctionType(plain.__code__, names, plain.__name__, plain.__defaults__, plain.__closure__)
            compiler = _InnerCompiler if isinstance(whole, InnerFunction) else _KeptCompiler
            copies[whole] = type(whole)(twin, targetoptions=whole.targetoptions, pipeline_class=compiler)
            called = {
                name: names[name] for name in plain.__code__.co_names if isinstance(names.get(name), InnerFunction)
            }
            names.update((name, copy(other)) for name, other in called.items())
        return copies[whole]

    return copy(function)


OUTSIDE = {"exp", "log", "log1p", "lgamma", "pow", "sqrt", "expf", "logf", "powf", "sqrtf"}
"""What machine code may call: functions of the mathematical library, which every process has."""


def machine_code(function: CPUDispatcher, arguments: tuple[Any, ...]) -> tuple[str, bytes, list[int]]:
    """The symbol and the code of such a function for named tuples like these, and the bytes of each of them."""
    kinds = [typeof(argument) for argument in arguments]
    signature = tuple(map(Borrowed, kinds))
    with _without_collector():
        function.compile(signature)
    compiled: Any = function.overloads[signature]
    context = cpu_target.target_context
    declared = {part.name for part in compiled.library._final_module.functions if part.is_declaration}
    called = {name for name in declared if not name.startswith("llvm.")}
    assert called <= OUTSIDE, f"compiled code calls {called - OUTSIDE}"
    sizes = [context.get_abi_sizeof(context.data_model_manager[kind].get_data_type()) for kind in kinds]
    return compiled.fndesc.llvm_func_name, compiled.library.translated(), sizes


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without Python's collector of cycles, which a compiler's many small objects keep busy for a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _InnerLibrary(JITCodeLibrary):
    """Code that is not run in this form: it is optimized once, with its caller, in two thirds of the time of twice."""

    def _optimize_final_module(self) -> None: ...

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> _InnerLibrary:
        return self

    def set_env(self, name: str, environment: object) -> None:
        """Its caller's environment serves it, as for code that is read from disk."""


class _KeptLibrary(_InnerLibrary):
    """Code that is translated when it is asked for."""

    def _optimize_final_module(self) -> None:
        JITCodeLibrary._optimize_final_module(self)

    def translated(self) -> bytes:
        """Its machine code, as an object file."""
        return self._codegen._tm.emit_object(self._final_module)


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    _name = "scansnap_inner_lowering"
    library: type[_InnerLibrary] = _InnerLibrary

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().run_pass(state)


@register_pass(mutates_CFG=True, analysis_only=False)
class _KeptLowering(_InnerLowering):
    _name = "scansnap_kept_lowering"
    library = _KeptLibrary


NEEDLESS = {
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    InlineOverloads,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    NopythonRewrites,
    RewriteDynamicRaises,
    WithLifting,
}
"""Passes that look for closures, exceptions, contexts and expressions of arrays: functions that make no arrays have
none of these."""


class _InnerCompiler(Compiler):
    lowering = _InnerLowering

    def define_pipelines(self) -> list[Any]:
        (pipeline,) = super().define_pipelines()
        pipeline.passes = [
            (self.lowering if kind is NativeLowering else kind, why)
            for kind, why in pipeline.passes
            if kind not in NEEDLESS or self.state.flags.nrt
        ]
        pipeline.finalize()
        return [pipeline]


class _KeptCompiler(_InnerCompiler):
    lowering = _KeptLowering
