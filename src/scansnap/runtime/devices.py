"""Where tensors live, and what compiles for them."""

from __future__ import annotations

import importlib.util

import torch

from scansnap.runtime.errors import InputError


def find_device(name: str) -> torch.device:
    """The device with this name; refused if this machine does not have it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda but PyTorch finds no CUDA device here: use device='cpu'.")
    return torch.device(name)


def has_triton() -> bool:
    """Whether Triton can compile kernels for a GPU: on Linux it comes with PyTorch's GPU builds."""
    return importlib.util.find_spec("triton") is not None
