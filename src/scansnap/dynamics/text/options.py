"""What a text training run is asked to do, checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.options import DEVICES, one_of, whole
from scansnap.errors import InputError
from scansnap.model.text_transformer import TextModel

OPTIMIZERS = ("sgd", "adam", "adamw")
PRECISIONS = ("float32", "bf16-decoder", "bf16")
"""bf16-decoder rounds the large products of the decoder, bf16 all products; parameters stay in float32."""

MEASURING = 0.0075


@dataclass(frozen=True)
class TextOptions:
    """The options of `train_text` beside the model's shape; the defaults are the published ones."""

    steps: int
    record_every: int
    lr_y: float = 5.0
    lr_z: float = 5.0
    batch_size: int = 20
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = 0.5
    precision: str = "float32"
    compile: bool = False
    device: str = "cpu"
    seed: int = 0
    evaluate_every: int | None = None
    patterns: int = 4

    def __post_init__(self) -> None:
        for name, least in (("steps", 0), ("batch_size", 1), ("record_every", 1), ("seed", 0), ("patterns", 0)):
            whole(name, getattr(self, name), least=least)
        for name in ("lr_y", "lr_z", "weight_decay"):
            _number(name, getattr(self, name), least=0.0)
        if self.clip is not None and not _number("clip", self.clip, least=0.0) > 0:
            raise InputError("clip is 0, which stops all learning: give the largest norm of a gradient, or None.")
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("precision", self.precision, PRECISIONS)
        one_of("device", self.device, DEVICES)
        if not 0 <= _number("momentum", self.momentum, least=0.0) < 1:
            raise InputError(f"momentum is {self.momentum}: give a number from 0 up to, but not including, 1.")
        if self.momentum and self.optimizer != "sgd":
            raise InputError(f"momentum is {self.momentum} but the optimizer is {self.optimizer}: it belongs to sgd.")
        if self.evaluate_every is not None:
            whole("evaluate_every", self.evaluate_every, least=1)

    @property
    def record_steps(self) -> NDArray[np.int64]:
        """0, record_every, 2 record_every, ..., and the last step."""
        return np.unique(np.append(np.arange(0, self.steps + 1, self.record_every), self.steps))

    def evaluates(self, record: int) -> bool:
        """Whether the validation loss is measured at this record.

        At the last, and at the first after each so many steps.
        """
        steps = self.record_steps
        if record == len(steps) - 1:
            return True
        every = self.evaluate_every
        return every is not None and record > 0 and bool(steps[record] // every > steps[record - 1] // every)


def record_interval(
    shape: TextModel, valid_tokens: int, batch_size: int, steps: int, precision: str = "float32"
) -> int:
    """Updates between records unless told: measuring takes `MEASURING` of the operations of training.

    That is at most 3% of its time, since small products run less fast than the decoder's; in bf16, where training but
    not measuring takes half the time, half of it.  And there are a hundred records at most.
    """
    measuring = 2 * valid_tokens * ((shape.layers - 1) * shape.layer_size + 2 * shape.width**2)
    training = 6 * batch_size * shape.window * (shape.vocab_size * shape.width + shape.layers * shape.layer_size)
    share = MEASURING if precision == "float32" else MEASURING / 2
    return max(1, math.ceil(measuring / (share * training)), math.ceil(steps / 100))


def _number(name: str, value: object, *, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < least:
        raise InputError(f"{name} is {value!r}: give a finite number of at least {least:g}.")
    return float(value)
