"""Training and flow in compiled code, on a CPU."""

from importlib import import_module
from pathlib import Path

COMPILED = {"training": "advance", "layers": "layered_gradients", "flow": "solve"}
"""The compiled function of each module, which is kept on disk."""


def compiled_before(module: str) -> bool:
    """Whether an earlier process left the module's compiled code on disk; otherwise its first call compiles."""
    function = getattr(import_module(f"{__name__}.{module}"), COMPILED[module])
    return any(Path(function._cache.cache_path).glob(f"{module}.*{COMPILED[module]}-*.nbc"))
