"""What needs PyTorch says so where it is not installed.

Compiled code trains one layer on a CPU and integrates its flow; files about tensors import torch and are imported by
nothing else.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from scansnap.base.errors import InputError


def has_torch() -> bool:
    """Whether PyTorch is installed; it is not imported."""
    try:
        return importlib.util.find_spec("torch") is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """For imports of files about tensors: if torch is missing, an `InputError` says that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise InputError(f"{what} needs PyTorch, which is not installed here: pip install 'scansnap[torch]'.") from None
