"""scansnap: the training dynamics of attention, exact and executable.

The system of "Scan and Snap: Understanding Training Dynamics and Token Composition in 1-layer Transformer" (Tian, Wang,
Chen and Du, NeurIPS 2023).  Names are imported when first used, so that `import scansnap` is quick.
"""

import re
from importlib import import_module
from pathlib import Path

from scansnap.runtime.machine import needs_torch

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {name: home for home, name in re.findall(r"^from (scansnap\S*) import \w+ as (\w+)$", _STUB, re.MULTILINE)}
_MODULES = ("measure", "plot", "theory")

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("scansnap")
    if name not in _HOMES:
        raise AttributeError(f"module 'scansnap' has no attribute '{name}'")
    home = _HOMES[name]
    with needs_torch(f"scansnap.{name}"):
        value: object = import_module(f"{home}.{name}") if name in _MODULES else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
