"""Fresh sequences to test runs on: they have a random stream of their own, and are the same at every record."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.compiled.gradient_at import GradientAt
from scansnap.dynamics.compiled.training_engine import KernelEngine
from scansnap.dynamics.engine import Work
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.results.snapshot import Parts
from scansnap.runtime.machine import needs_torch

NUM_FRESH = 1024
"""Fresh sequences that a run is tested on."""

FRESH_STREAM = -3
"""A step number that no update has: the random stream of fresh sequences."""


class FreshData(Protocol):
    """Sequences that no update sees."""

    def measure(self, parts: Parts) -> dict[str, NDArray[np.float64]]:
        """Loss and accuracy (R,) of runs in an engine's present state."""


def fresh_data(work: Work, start: Start, runs: Runs) -> FreshData:
    """The fresh sequences of these runs."""
    if KernelEngine.serves(work):
        return KernelFreshData(work, start, runs)
    with needs_torch("the loss of your own parts, or on a GPU, on fresh sequences"):
        from scansnap.dynamics.fixed_data import FreshTensors
    return FreshTensors(work, start.layout, runs)


class KernelFreshData:
    """Measured by the CPU kernel."""

    def __init__(self, work: Work, start: Start, runs: Runs) -> None:
        self._is_learned = work.options.learn_position_bias
        self._engine = GradientAt(
            work, start, runs, stream=FRESH_STREAM, num_sequences=NUM_FRESH, batch_size=None, decoder_gradient="true"
        )

    def measure(self, parts: Parts) -> dict[str, NDArray[np.float64]]:
        decoder, logits, bias = parts.decoder, parts.attention_logits, parts.position_bias
        assert decoder is not None
        assert logits is not None
        none = np.empty((len(logits), 0))
        self._engine.place(decoder, logits, bias if bias is not None and self._is_learned else none)
        loss, accuracy = self._engine.measures()
        return {"fresh_loss": loss, "fresh_accuracy": accuracy}
