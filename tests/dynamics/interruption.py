"""A run that is stopped on its way and started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import scansnap as ss
import scansnap.dynamics.train as module
from scansnap.data.source import DataSource


def train_interrupted(classes: DataSource, path: Path, *, advances: int, **options: Any) -> xr.Dataset:
    """`train` to a store, stopped after this many advances and then to its end, which must not begin at the start."""
    advance, steps = module._Training._advance, []

    def counted(self: Any, record: int) -> None:
        if len(steps) == advances:
            raise KeyboardInterrupt
        advance(self, record)
        steps.append(self._engine.step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHECKPOINT_SECONDS", -1.0)
        patch.setattr(module._Training, "_advance", counted)
        with pytest.raises(KeyboardInterrupt):
            ss.train(classes, **options, store=path)
        reached, advances = steps[-1], 10**9
        steps.clear()
        result = ss.train(classes, **options, store=path)
    assert 0 < reached <= steps[0]
    assert len(steps) > 1
    return result
