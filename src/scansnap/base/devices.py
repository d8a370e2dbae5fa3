"""Where tensors live, and what compiles for them."""

from __future__ import annotations

import importlib.util

import torch

from scansnap.base.errors import InputError


def find_device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda but PyTorch finds no CUDA device here: use device='cpu'.")
    return torch.device(name)


def has_triton() -> bool:
    """Whether Triton is there to compile kernels for a GPU: it comes with PyTorch's builds for one, on Linux."""
    return importlib.util.find_spec("triton") is not None
