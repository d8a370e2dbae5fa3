"""The training that a prediction is about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Rates and updates of a training, as `train_text` takes them."""

    lr_y: float
    lr_z: float
    steps: int

    @property
    def ratio(self) -> float:
        """eta_Y / eta_Z."""
        return self.lr_y / self.lr_z

    @property
    def time(self) -> float:
        """tau = eta_Y t at the end: how far an expected gradient of size one takes an entry of Y."""
        return self.lr_y * self.steps
