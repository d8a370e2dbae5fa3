"""Engines of `flow`, which integrate runs: one interface, as `engine.py` has it for training.

An engine says which work it serves, and `flow_engine_for` picks the first that serves it: compiled code for the basic
layer, on a CPU or on a GPU, and for the gradient of other built-in layers; tensors on a CPU for everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.engine import Task, matrix_entries, needs_decoder
from scansnap.dynamics.options import FlowOptions, Runs
from scansnap.dynamics.start import Start
from scansnap.runtime.machine import check_memory, needs_torch
from scansnap.systems.yz.architecture import BASIC

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class FlowWork(Task[FlowOptions]):
    """What an engine integrates."""

    @property
    def is_basic(self) -> bool:
        """Whether it is the paper's basic setting."""
        return self.layer == BASIC and self.options.decoder_gradient == "true" and not self.source.classes.num_buckets

    @property
    def shows_decoder(self) -> bool:
        """Whether anything is recorded that is computed from Y."""
        return needs_decoder([need for quantity in self.options.quantities for need in quantity.needs])

    @property
    def numbers_per_run(self) -> float:
        """How many numbers a run holds in memory: its state at every time, and what the integrator needs."""
        return matrix_entries(self.start_layout) * (2.0 * len(self.options.times) + 40)

    def check_size(self) -> None:
        count = len(self.options.times)
        check_memory(f"a run at {count:,} times needs", 8 * self.numbers_per_run, "ask for fewer times")

    def log_times(self, runs: Runs, run: int) -> tuple[FloatArray, float]:
        """The times u = ln(1 + t/s) of a run, and s = 1 / max(eta_Y, eta_Z)."""
        scale = 1.0 / (max(float(runs.lr_y[run]), float(runs.lr_z[run])) or 1.0)
        return np.log1p(np.array(self.options.times) / scale), scale


@dataclass(frozen=True)
class Solution:
    """R runs at n times; NaN where the integration did not reach."""

    decoder: FloatArray | None  # (R, n, H D, C) compact y, with or without padding; None where none is recorded
    attention_logits: FloatArray  # (R, n, Q H, S) z
    position_bias: FloatArray | None  # (R, n, G), where tokens depend on their position
    loss: FloatArray  # (R, n)
    accuracy: FloatArray  # (R, n)
    reached: FloatArray  # (R,) the time that was reached


class FlowEngine(Protocol):
    """Integrates runs that begin at `start`."""

    def __init__(self, work: FlowWork, start: Start) -> None: ...

    @staticmethod
    def serves(work: FlowWork) -> bool:
        """Whether the engine can do this work."""

    def solve(self, runs: Runs, most_evaluations: int, show: Callable[[float], None]) -> Solution:
        """The runs at the times of the options; `show` is called with the number of runs done."""


ENGINES = {
    "compiled.flow_engine": "KernelFlow",
    "compiled.layer_flow": "KernelLayerFlow",
    "flow_device": "DeviceFlow",
    "flow_tensors": "FlowOnTensors",
}
"""Modules and classes in order of preference; each is imported only when asked."""


def flow_engine_for(work: FlowWork) -> type[FlowEngine]:
    """The first engine that serves this work."""
    for module, name in ENGINES.items():
        with needs_torch("flow on a GPU, or with parts of your own,"):
            engine: type[FlowEngine] = getattr(import_module(f"scansnap.dynamics.{module}"), name)
        if engine.serves(work):
            return engine
    raise AssertionError("tensors serve everything that options allow")
