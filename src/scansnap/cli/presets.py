"""Settings that have a name: the paper's, ready to run and to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scansnap.base.errors import unknown
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import single_common, syn_medium, syn_small

PUBLISHED: dict[str, Any] = {"steps": 100, "batch_size": 128, "seq_len": 128, "momentum": 0.9}


@dataclass(frozen=True)
class Preset:
    """Classes and the options that differ from the defaults."""

    about: str
    classes: Callable[[], SequenceClasses]
    train: dict[str, Any]
    flow: dict[str, Any] | None  # None where the optimiser is not that of a gradient flow


PRESETS = {
    "syn-small": Preset(
        "Figure 4, left: two queries, one next token each; SGD with momentum",
        syn_small,
        {**PUBLISHED, "lr_y": 1.0, "lr_z": 1.0, "record_every": 2},
        {"lr_y": 1.0, "lr_z": 1.0},
    ),
    "syn-small-fast-decoder": Preset(
        "Figure 4, right: the same with a ten times faster decoder",
        syn_small,
        {**PUBLISHED, "lr_y": 10.0, "lr_z": 1.0, "record_every": 2},
        {"lr_y": 10.0, "lr_z": 1.0},
    ),
    "syn-small-adam": Preset(
        "Figure 5, middle: Adam at rate 0.5",
        syn_small,
        {**PUBLISHED, "momentum": None, "optimizer": "adam", "lr_y": 0.5, "lr_z": 0.5, "record_every": 2},
        None,
    ),
    "syn-medium": Preset(
        "Figure 6, one cell: three queries, two next tokens each, random start",
        lambda: syn_medium(num_query=3),
        {**PUBLISHED, "lr_y": 2.0, "lr_z": 1.0, "init": "uniform", "record_every": 2},
        {"lr_y": 2.0, "lr_z": 1.0, "init": "uniform"},
    ),
    "single-common": Preset(
        "Section 6: ten classes of one query with a single common token, M = 1000",
        single_common,
        {"steps": 2000, "batch_size": None, "seq_len": float("inf"), "lr_y": 0.5, "lr_z": 0.05, "record_every": 20},
        {"lr_y": 0.5, "lr_z": 0.05},
    ),
}


def preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]
