"""Compiled functions that only other compiled functions call, which compile faster.

Numba compiles every function as if Python might call it: with two wrappers, down to machine code.  Its caller takes in
what there was before that, and translates it again.  Of the eighty functions of the CPU kernel one is called from
Python.  An inner function stops where its caller takes it in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering


class InnerFunction(CPUDispatcher):
    """A function for compiled code; Python, as in tests, calls it by way of one that is compiled as usual."""

    def __call__(self, *arguments: Any) -> Any:
        return self._outer(*arguments)

    @cached_property
    def _outer(self) -> Any:
        inner = self
        return njit(lambda *arguments: inner(*arguments))


def inner(**options: Any) -> Callable[[Callable[..., Any]], InnerFunction]:
    """A decorator like numba's `njit`, for functions that only compiled code calls."""
    stated = {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
    return lambda function: InnerFunction(function, targetoptions=stated, pipeline_class=_InnerCompiler)


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
