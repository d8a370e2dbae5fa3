"""Training and flow in compiled code, on a CPU."""

from importlib import import_module

COMPILED = {"layers": "layered_gradients", "flow": "solve"}
"""The compiled function of each module that numba keeps on disk; that of training is kept by itself."""


def compiled_before(module: str) -> bool:
    """Whether an earlier process left the module's compiled code on disk; otherwise its first call compiles.

    Code of an earlier version, or for another processor, does not count: numba's index has it under other keys.
    """
    if module == "training":
        from scansnap.dynamics.compiled.training_engine import advance_basic

        return advance_basic.is_kept()
    function = getattr(import_module(f"{__name__}.{module}"), COMPILED[module])
    _, *current = function._cache._index_key(None, function.targetctx.codegen())
    return any(key[1:] == tuple(current) for key in function._cache._cache_file._load_index())
