"""Sweeps around a setting, and its words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import scansnap as ss
from scansnap.dynamics.published import PUBLISHED, SYN_MEDIUM, SYN_SMALL
from scansnap.figures.recipe import setting_in_words, sweep_setting

SHORT = replace(SYN_SMALL, steps=4, record=("loss", "attention"))


def test_lists_and_seeds_are_dimensions() -> None:
    runs = sweep_setting(ss.syn_small(), SHORT, lr_y=[1.0, 10.0], seeds=range(3))
    assert runs["loss"].dims == ("lr_y", "seed", "step")
    assert runs["step"].values.tolist() == [0, 2, 4]  # the rest is as in the setting
    alone = ss.train(ss.syn_small(), replace(SHORT, lr_y=10.0, seeds=2))
    assert np.array_equal(runs["attention"].sel(lr_y=10.0, seed=2).values, alone["attention"].values[0])


def test_rates_that_move_together() -> None:
    runs = sweep_setting(ss.syn_small(), SHORT, lr_z=[0.5], lr_y_over_lr_z=1.0, heads=[1, 2], record=("loss",))
    assert runs["loss"].dims == ("heads", "lr_z", "seed", "step")
    assert runs["lr_y"].values.tolist() == [0.5]


def test_words() -> None:
    assert setting_in_words(PUBLISHED["syn-small-adam"].options) == "batch 128, T = 128, zero start, 100 updates"
    assert setting_in_words(SYN_MEDIUM) == "batch 128, T = 128, start uniform in ±1/√M, 100 updates"
