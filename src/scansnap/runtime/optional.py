"""What needs PyTorch says so where it is not installed.

Compiled code trains one layer on a CPU and integrates its flow; files about tensors import torch and are imported by
nothing else.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from scansnap.runtime.errors import InputError

NEEDED = {"torch": "PyTorch", "safetensors": "safetensors"}
"""What the extra `torch` installs, by module."""


def has_torch() -> bool:
    """Whether PyTorch is installed; it is not imported."""
    try:
        return importlib.util.find_spec("torch") is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """For imports of files about tensors: if what they need is missing, an `InputError` says that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        needed = NEEDED.get((error.name or "").split(".")[0])
        if needed is None:
            raise
        words = f"{what} needs {needed}, which is not installed here: pip install 'scansnap[torch]'."
        raise InputError(words) from None
