"""The gradient and the loss at any parameters, as the CPU kernel computes them in training.

From rest, a step with momentum mu takes v = g and leaves the velocity mu g (`rules.py`).  With mu = 1/2 twice that
velocity is the gradient, exactly, and at rates of 0 nothing moves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.compiled.training_engine import KernelEngine
from scansnap.dynamics.engine import Work
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start

MOMENTUM = 0.5


@dataclass(frozen=True)
class Movement:
    """How runs move for each unit of their rates, with the loss and accuracy there; NaN where the loss is infinite."""

    decoder: NDArray[np.float64]  # (R, H D, C) every entry of y
    attention_logits: NDArray[np.float64]  # (R, Q H, S) dJ/dz
    position_bias: NDArray[np.float64]  # (R, G) dJ/db where it is learned, otherwise (R, 0)
    loss: NDArray[np.float64]  # (R,)
    accuracy: NDArray[np.float64]  # (R,)


class GradientAt(KernelEngine):
    """One batch, and runs that are put where they are asked about; `changes` are made to the options."""

    def __init__(
        self, work: Work, start: Start, runs: Runs, *, stream: int = 0, balanced: bool = False, **changes: Any
    ) -> None:
        options = replace(work.options, optimizer="sgd", momentum=MOMENTUM, **changes)
        still = np.zeros(len(runs))
        at_rest = Runs(still, still, runs.seed)
        super().__init__(Work(work.source, options), start, at_rest, stream=stream, balanced=balanced)

    def measures(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and accuracy (R,)."""
        return self.evaluate()

    def movement(self) -> Movement:
        """Where the runs stand, once: ask again after `place`."""
        loss, accuracy = self._call(1, update=True)
        state, plan, rows = self._state, self._plan, self._layout.num_decoder_rows
        blocks = self._blocks(state.decoder_velocity)
        decoder = blocks[:, :, :rows]
        if plan.num_tokens > 0:  # the gradient of Y^, and of the row that holds the means (`rules.py`)
            decoder = decoder + blocks[:, :, rows:] / math.sqrt(plan.num_tokens)
        decoder = decoder.reshape(len(decoder), -1, blocks.shape[-1]) * plan.column_rate[0]
        lost = state.diverged >= 0

        def gradient(velocity: NDArray[np.floating]) -> NDArray[np.float64]:
            return np.where(lost.reshape(-1, *[1] * (velocity.ndim - 1)), np.nan, velocity / MOMENTUM)

        return Movement(
            decoder=gradient(decoder),
            attention_logits=gradient(state.attention_velocity),
            position_bias=gradient(state.position_velocity[:, 0]),
            loss=loss[:, 0],
            accuracy=accuracy[:, 0],
        )


def first_gradient(work: Work, start: Start) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """dJ/dY (S x M) and dJ/dz (Q x S) of the first batch of a run, by entry, for the basic layer."""
    movement = GradientAt(work, start, work.options.runs, dtype="float64").movement()
    return start.layout.expand_decoder(movement.decoder)[0, 0], movement.attention_logits[0]
