"""Fresh sequences to test runs on: they have a random stream of their own, and are the same at every record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.batches import FRESH_STREAM, NUM_FRESH, Batches
from scansnap.dynamics.kernel_engine import KernelGradient, has_kernel
from scansnap.dynamics.options import Runs
from scansnap.dynamics.start import Start
from scansnap.dynamics.yz_tasks import YZTraining
from scansnap.results.snapshot import Parts
from scansnap.runtime.machine import needs_torch


class FreshData:
    """Sequences that no update sees."""

    def __init__(self, work: YZTraining, start: Start, runs: Runs) -> None:
        self._work, self._start, self._runs = work, start, runs
        self._batches = Batches(work.source, None, work.options.length, NUM_FRESH, FRESH_STREAM)
        self._learned = work.options.learn_position_bias
        self._gradients: dict[int, KernelGradient] = {}

    def measure(self, parts: Parts) -> dict[str, NDArray[np.float64]]:
        """Loss and accuracy (R,) of runs in an engine's present state."""
        loss, accuracy = (self._compiled if has_kernel(self._work.layer) else self._tensors)(parts)
        return {"fresh_loss": loss, "fresh_accuracy": accuracy}

    def _compiled(self, parts: Parts) -> NDArray[np.float64]:
        assert parts.decoder is not None
        assert parts.attention_logits is not None
        results = []
        for r, seed in enumerate(self._runs.seed):
            if int(seed) not in self._gradients:
                self._gradients[int(seed)] = KernelGradient(
                    self._start, self._batches, int(seed), learned=self._learned
                )
            state = [parts.decoder[r].ravel(), parts.attention_logits[r].ravel()]
            if self._learned and parts.position_bias is not None:
                state.append(parts.position_bias[r])
            results.append(self._gradients[int(seed)].measures(np.concatenate(state, dtype=np.float64)[None]))
        return np.array(results)[:, :, 0].T

    def _tensors(self, parts: Parts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        with needs_torch("the loss of your own parts on fresh sequences"):
            import torch

            from scansnap.dynamics.gradients import LayoutTensors, TensorBatches, measures
        layout = LayoutTensors.of(self._start.layout, dtype=torch.float64)
        batch = TensorBatches(layout, self._batches, self._runs.seed).at(0)
        assert parts.decoder is not None
        assert parts.attention_logits is not None
        y, z = (torch.from_numpy(array).double() for array in (parts.decoder, parts.attention_logits))
        bias = None if parts.position_bias is None else torch.from_numpy(parts.position_bias).double()[:, None]
        loss, accuracy = measures(layout, y, z, batch, bias)
        return loss.numpy(), accuracy.numpy()
