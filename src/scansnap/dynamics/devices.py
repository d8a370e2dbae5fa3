"""Where tensors live."""

from __future__ import annotations

import torch

from scansnap.errors import InputError


def find_device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda but PyTorch finds no CUDA device here: use device='cpu'.")
    return torch.device(name)
