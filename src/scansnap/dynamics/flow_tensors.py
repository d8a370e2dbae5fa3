"""The flow of layers with parts of the user's own, along the gradient of `gradients.py`."""

from __future__ import annotations

import torch

from scansnap.dynamics.flow_engine import FloatArray, FlowWork
from scansnap.dynamics.flow_of_layers import Field, FlowOfLayers
from scansnap.dynamics.gradients import LayoutTensors, check_independent, gradients, measures, population_batch


class FlowOnTensors(FlowOfLayers):
    """Serves everything that options allow."""

    @staticmethod
    def serves(work: FlowWork) -> bool:
        return True

    def _field(self) -> Field:
        layout = LayoutTensors.of(self._start.layout, dtype=torch.float64)
        return _TensorField(layout, modified=self._work.options.decoder_gradient == "modified")


class _TensorField(Field):
    def __init__(self, layout: LayoutTensors, *, modified: bool) -> None:
        self._layout, self._modified = layout, modified

    def movement(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        layout, batch = self._layout, population_batch(self._layout, len(y))
        gradient = gradients(
            layout,
            torch.from_numpy(y),
            torch.from_numpy(z),
            batch,
            modified=self._modified,
            bias=_tensor(bias),
            balanced=True,
        )
        slope = gradient.position_bias
        return (
            (layout.entry_rate * gradient.decoder).detach().numpy(),
            gradient.attention_logits.detach().numpy(),
            bias if slope is None else slope[:, 0].detach().numpy(),
        )

    def measures(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        batch = population_batch(self._layout, len(y))
        loss, accuracy = measures(self._layout, torch.from_numpy(y), torch.from_numpy(z), batch, _tensor(bias))
        return loss.numpy(), accuracy.numpy()

    def check(self, y: FloatArray, z: FloatArray, bias: FloatArray) -> None:
        if self._modified:
            check_independent(self._layout, torch.from_numpy(z), _tensor(bias))


def _tensor(bias: FloatArray) -> torch.Tensor | None:
    """(n, 1, G), or None where there are no positions."""
    return torch.from_numpy(bias)[:, None] if bias.shape[1] else None
