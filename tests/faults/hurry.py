"""Checkpoints as often as possible.  This module imports only what it changes, so that programs start quickly."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def hurry(
    change: Callable[[Any, str, Any], None] = setattr, seconds: float = -1.0, packages: tuple[str, ...] = ()
) -> None:
    """Let training and sweeps in some packages, or in all, commit every so many seconds."""
    for name, value in {
        "scansnap.dynamics.train.CHECKPOINT_SECONDS": seconds,
        "scansnap.dynamics.train.FIRST_PIECE": 2,
        "scansnap.dynamics.train.PIECE_SECONDS": max(0.0, seconds),
        "scansnap.dynamics.sweep.COMMIT_SECONDS": seconds,
        "scansnap.text.train.CHECKPOINT_SECONDS": seconds,
    }.items():
        module, _, constant = name.rpartition(".")
        if not packages or module.split(".")[1] in packages:
            change(importlib.import_module(module), constant, value)
