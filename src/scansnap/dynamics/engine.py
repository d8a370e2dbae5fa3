"""What advances runs: one contract, kept by the CPU kernel and by the tensor path.

Both draw the same sequences for the same seed and do the same arithmetic in another order, so they agree to rounding.
`make_engine` picks one: the kernel for the basic setting on a CPU, tensors on a GPU, for Lemma 3's modified gradient
and for everything beyond the basic setting.  A user never chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.options import Runs, TrainOptions
from scansnap.dynamics.start import Start
from scansnap.model.architecture import BASIC

Array = NDArray[np.generic]


class Engine(Protocol):
    """Runs in progress.  Update number s uses batch number s; `step` updates have been made."""

    @property
    def step(self) -> int:
        """Updates made so far."""

    def advance(self, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Update until `stop` updates are made; loss and accuracy (R, n) of each batch before its update."""

    def evaluate(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Loss and accuracy (R,) of the batch that the next update would use, learning nothing."""

    def attention_logits(self) -> NDArray[np.floating]:
        """z as it is now (R, Q, S)."""

    def decoder(self) -> NDArray[np.floating]:
        """Compact y as it is now (R, S, C)."""

    def position_bias(self) -> NDArray[np.floating] | None:
        """The positions' bias as it is now (R, G); None where there is none."""

    def diverged(self) -> NDArray[np.int64]:
        """The step at which each run's loss was first not finite; -1 where it never was (R,)."""

    def state(self) -> dict[str, Array]:
        """Everything needed to continue to identical numbers."""

    def restore(self, step: int, state: Mapping[str, Array]) -> None:
        """Continue from what `state` gave after `step` updates."""


@runtime_checkable
class SeveralLayers(Protocol):
    """An engine whose attention is not a softmax of logits by query and token."""

    def layer_attention(self) -> NDArray[np.float64]:
        """Attention of every layer (R, K, L, S)."""


def suits_kernel(options: TrainOptions) -> bool:
    """Whether the CPU kernel does all that these options ask for."""
    return (
        options.device == "cpu"
        and options.decoder_gradient == "true"
        and options.architecture == BASIC
        and options.optimizer in ("sgd", "adam")
        and options.num_sequences is None
    )


def make_engine(start: Start, options: TrainOptions, runs: Runs) -> Engine:
    """The engine for these options."""
    if options.architecture.layers > 1:
        from scansnap.dynamics.layered_engine import LayeredEngine

        return LayeredEngine(start, options, runs)
    if suits_kernel(options) and start.positions is None:
        from scansnap.dynamics.kernel_engine import KernelEngine

        return KernelEngine(start, options, runs)
    from scansnap.dynamics.tensor_engine import TensorEngine

    return TensorEngine(start, options, runs)
