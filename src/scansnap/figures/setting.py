"""The setting of a figure's runs: a grid around options that are stated elsewhere, and their words."""

from __future__ import annotations

from typing import Any

import xarray as xr

from scansnap.base.checks import is_list
from scansnap.base.options import options_of
from scansnap.dynamics.options import TrainOptions
from scansnap.sweeps.sweep import SweepClasses, sweep


def sweep_of(classes: SweepClasses, setting: TrainOptions, **changes: Any) -> xr.Dataset:
    """Sweep a setting with some of its options changed; those given as lists, and the seeds, are dimensions."""
    words = {name: getattr(setting, name) for name in options_of(TrainOptions)} | changes
    if "lr_y_over_lr_z" in changes:
        del words["lr_y"]
    single = [name for name in ("lr_z", "lr_y", "lr_y_over_lr_z") if name in words and not is_list(words[name])]
    return sweep(classes, **words, progress=False).squeeze(single, drop=True)


def in_words(setting: TrainOptions) -> str:
    """The setting's batches, start and length in words: `batch 128, T = 128, zero start, 100 updates`."""
    start = "zero start" if setting.init == "zeros" else "start uniform in ±1/√M"
    return f"batch {setting.batch_size}, T = {setting.seq_len:g}, {start}, {setting.steps} updates"
