"""Training and flow in compiled code, on a CPU."""

from importlib import import_module
from pathlib import Path

COMPILED = {"layers": "layered_gradients", "flow": "solve"}
"""The compiled function of each module that numba keeps on disk; that of training is kept by itself."""


def compiled_before(module: str) -> bool:
    """Whether an earlier process left the module's compiled code on disk; otherwise its first call compiles."""
    if module == "training":
        from scansnap.dynamics.compiled.training_engine import advance

        return advance.is_kept()
    function = getattr(import_module(f"{__name__}.{module}"), COMPILED[module])
    return any(Path(function._cache.cache_path).glob(f"{module}.*{COMPILED[module]}-*.nbc"))
