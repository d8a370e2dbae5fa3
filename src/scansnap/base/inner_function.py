"""Compiled functions that only other compiled functions call, which compile faster.

Numba compiles every function as if Python might call it: with two wrappers, down to machine code.  Its caller takes in
what there was before that, and translates it again.  Of the eighty functions of the CPU kernel one is called from
Python.  An inner function stops where its caller takes it in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from numba import njit, typeof
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typed_passes import NativeLowering

from scansnap.base.borrowed import Borrowed

BARE = {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
"""Nothing for Python to call, and no counting of references to arrays: whoever calls keeps them."""


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
    return lambda function: CPUDispatcher(function, targetoptions=BARE | options)


OUTSIDE = {"exp", "log", "log1p", "lgamma", "pow", "sqrt", "expf", "logf", "powf", "sqrtf"}
"""What machine code may call: functions of the mathematical library, which every process has."""


def machine_code(function: CPUDispatcher, arguments: tuple[Any, ...]) -> tuple[str, bytes, list[int]]:
    """The symbol and the code of such a function for named tuples like these, and the bytes of each of them."""
    kinds = [typeof(argument) for argument in arguments]
    signature = tuple(map(Borrowed, kinds))
    function.compile(signature)
    compiled: Any = function.overloads[signature]
    context = cpu_target.target_context
    declared = {part.name for part in compiled.library._final_module.functions if part.is_declaration}
    called = {name for name in declared if not name.startswith("llvm.")}
    assert called <= OUTSIDE, f"compiled code calls {called - OUTSIDE}"
    sizes = [context.get_abi_sizeof(context.data_model_manager[kind].get_data_type()) for kind in kinds]
    return compiled.fndesc.llvm_func_name, compiled.library._get_compiled_object(), sizes


class _InnerLibrary(JITCodeLibrary):
    """Code that is never run by itself, and so not translated.

    It is optimized as if it were: where sums may be reordered, code that is optimized twice rounds differently from
    code that is optimized once, and results should not change with how they are compiled.
    """

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


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    _name = "scansnap_inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


class _InnerCompiler(Compiler):
    def define_pipelines(self) -> list[Any]:
        (pipeline,) = super().define_pipelines()
        pipeline.passes = [(_InnerLowering if kind is NativeLowering else kind, why) for kind, why in pipeline.passes]
        pipeline.finalize()
        return [pipeline]
