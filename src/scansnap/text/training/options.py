"""The options of a text training run, checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scansnap.base.checks import flag, number, one_of, whole
from scansnap.base.errors import InputError
from scansnap.dynamics.options import DEVICES
from scansnap.text.model.transformer import TextShape

OPTIMIZERS = ("sgd", "adam", "adamw")
PRECISIONS = ("float32", "bf16-decoder", "bf16")
"""bf16-decoder rounds the large products of the decoder, bf16 rounds all products; parameters stay in float32."""

MEASURING = 0.0125
"""Operations to measure attention per operation of training.  The share of time is up to twice that: its products are
smaller."""

PER_WEIGHT = 2000
"""Operations to measure one attention weight: softmax, entropy, the search for the largest."""

FEWEST, MOST, SAMPLED = 16, 100, 64
"""The fewest and the most records by default, and the fewest windows of the validation split that each measures."""


@dataclass(frozen=True)
class TextOptions:
    """The options of `train_text` other than the model's shape; the defaults are the published values."""

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
    measured: int | None = None
    """How many windows, evenly spread over the validation split, have their attention measured; all if None."""

    def __post_init__(self) -> None:
        plain: dict[str, object] = {"compile": flag("compile", self.compile)}
        for name, least in (("steps", 0), ("batch_size", 1), ("record_every", 1), ("seed", 0), ("patterns", 0)):
            plain[name] = whole(name, getattr(self, name), least=least)
        if self.evaluate_every is not None:
            plain["evaluate_every"] = whole("evaluate_every", self.evaluate_every, least=1)
        for name in ("lr_y", "lr_z", "weight_decay"):
            plain[name] = number(name, getattr(self, name), least=0.0)
        plain["momentum"] = number("momentum", self.momentum, least=0.0, below=1.0)
        if self.clip is not None:
            plain["clip"] = number("clip", self.clip, least=0.0)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if self.clip == 0:
            raise InputError(
                "clip is 0, which stops all learning: give the largest allowed norm of the gradient, or None."
            )
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("precision", self.precision, PRECISIONS)
        one_of("device", self.device, DEVICES)
        if self.momentum and self.optimizer != "sgd":
            raise InputError(
                f"momentum is {self.momentum} but the optimizer is {self.optimizer}: use sgd, or leave momentum out."
            )

    @property
    def record_steps(self) -> NDArray[np.int64]:
        """0, record_every, 2 record_every, ..., and the last step."""
        return np.unique(np.append(np.arange(0, self.steps + 1, self.record_every), self.steps))

    def evaluates(self, record: int) -> bool:
        """Whether the validation loss is measured at this record.

        It is at the last record, and at the first record after each multiple of `evaluate_every` steps.
        """
        steps = self.record_steps
        if record == len(steps) - 1:
            return True
        every = self.evaluate_every
        return every is not None and record > 0 and bool(steps[record] // every > steps[record - 1] // every)


def record_plan(
    shape: TextShape, valid_tokens: int, batch_size: int, steps: int, precision: str
) -> tuple[int, int | None]:
    """The default number of updates between records, and the number of windows that each measures (None for all).

    Measuring takes the share `MEASURING` of the operations of training.  The whole split is measured as often as that
    allows, but `FEWEST` to `MOST` times; if even `FEWEST` is too often, each record measures fewer windows, but at
    least `SAMPLED`.  In bf16 an operation of training takes half the time, but one of measuring does not.
    """
    layers, width, window = shape.layers, shape.width, shape.window
    per_token = 2 * ((layers - 1) * shape.layer_size + 2 * width**2)
    per_token += layers * window * (2 * width + PER_WEIGHT * shape.heads)
    training = 6 * batch_size * window * (shape.vocab_size * width + layers * shape.layer_size)
    allowed = MEASURING * training * (1.0 if precision == "float32" else 0.5)  # for each update
    every = max(math.ceil(valid_tokens * per_token / allowed), math.ceil(steps / MOST), 1)
    every = min(every, max(1, steps // FEWEST))
    windows = max(SAMPLED, int(every * allowed / (per_token * window)))
    return every, windows if windows * window < valid_tokens else None
