"""The setting of a figure's runs: a grid around options that are stated elsewhere, and their words."""

from __future__ import annotations

from typing import Any

import xarray as xr

from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.sweep import SweepClasses, sweep
from scansnap.validation.checks import is_list

RATES = ("lr_z", "lr_y", "lr_y_over_lr_z")


def sweep_of(classes: SweepClasses, setting: TrainOptions, **changes: Any) -> xr.Dataset:
    """Sweep a setting with some of its options changed; those given as lists, and the seeds, are dimensions."""
    result = sweep(classes, setting, **changes, progress=False)
    rates = {"lr_z": setting.lr_z, "lr_y": setting.lr_y, **changes}
    return result.squeeze([rate for rate in RATES if rate in result.dims and not is_list(rates[rate])], drop=True)


def in_words(setting: TrainOptions) -> str:
    """The setting's batches, start and length in words: `batch 128, T = 128, zero start, 100 updates`."""
    start = "zero start" if setting.init == "zeros" else "start uniform in ±1/√M"
    return f"batch {setting.batch_size}, T = {setting.seq_len:g}, {start}, {setting.steps} updates"
