"""Compute the training dynamics of attention exactly.

The system of "Scan and Snap: Understanding Training Dynamics and Token Composition in 1-layer Transformer" (Tian, Wang,
Chen and Du, NeurIPS 2023).  Names are imported when first used, so that `import scansnap` is quick.
"""

import lazy_loader

from scansnap.runtime.machine import needs_torch
from scansnap.runtime.removed import REMOVED_NAMES

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("scansnap")
    if name in REMOVED_NAMES and name not in __all__:
        raise AttributeError(f"scansnap.{name} was removed in version 0.2: {REMOVED_NAMES[name]}.")
    with needs_torch(f"scansnap.{name}"):
        return _load(name)
