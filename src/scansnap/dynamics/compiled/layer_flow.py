"""The flow of layers other than the basic one, along the gradient of the CPU kernel."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np

from scansnap.dynamics.compiled.gradient_at import GradientAt
from scansnap.dynamics.compiled.training_engine import KernelEngine
from scansnap.dynamics.engine import Work
from scansnap.dynamics.flow_engine import FloatArray, FlowWork
from scansnap.dynamics.flow_of_layers import Field, FlowOfLayers
from scansnap.dynamics.options import FlowOptions, Runs, TrainOptions
from scansnap.dynamics.start import Start


class KernelLayerFlow(FlowOfLayers):
    """Any layer of built-in parts, with either decoder gradient."""

    @staticmethod
    def serves(work: FlowWork) -> bool:
        return KernelEngine.serves(_training(work))

    def _field(self) -> Field:
        return _KernelField(_training(self._work), self._start)


def _training(work: FlowWork) -> Work:
    """One expected step with the options of a flow."""
    shared = {field.name for field in fields(FlowOptions)} & {field.name for field in fields(TrainOptions)}
    words = {name: getattr(work.options, name) for name in shared}
    return Work(work.source, TrainOptions(**words, steps=1, batch_size=None, seq_len=math.inf, dtype="float64"))


class _KernelField(Field):
    def __init__(self, work: Work, start: Start) -> None:
        self._work, self._start = work, start
        self._engines: dict[int, GradientAt] = {}

    def movement(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        movement = self._at(y, z, bias).movement()
        return movement.decoder, movement.attention_logits, movement.position_bias

    def measures(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._at(y, z, bias).measures()

    def check(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> None:
        engine = self._at(y, z, bias)
        engine.movement()
        engine.check_independent()

    def _at(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> GradientAt:
        """The kernel with these states, one to a run."""
        count = len(y)
        if count not in self._engines:
            still = np.zeros(count)
            start = replace(self._start, decoder=y, attention_logits=z)
            runs = Runs(still, still, np.zeros(count, np.uint64))
            self._engines[count] = GradientAt(self._work, start, runs, balanced=True)
        engine = self._engines[count]
        engine.place(y, z, bias if self._work.options.learn_position_bias else bias[:, :0])
        return engine
