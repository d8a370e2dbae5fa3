"""The options of a text training run, checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.base.options import option
from scansnap.text.model.shape import ModelOptions, TextShape

MEASURING = 0.0125
"""Operations to measure attention per operation of training.  The share of time is up to twice that: its products are
smaller."""

PER_WEIGHT = 2000
"""Operations to measure one attention weight: softmax, entropy, the search for the largest."""

FEWEST, MOST, SAMPLED = 16, 100, 64
"""The fewest and the most records by default, and the fewest windows of the validation split that each measures."""


@dataclass(frozen=True, kw_only=True)
class TextOptions(ModelOptions):
    """The training; the defaults are those of the published text experiment (Figure 7)."""

    lr_y: float = field(
        default=5.0, metadata=option("Learning rate of all parameters but those of --lr-z.", least=0, most=1e30)
    )
    lr_z: float | None = field(
        default=None,
        metadata=option(
            "Learning rate of what makes attention logits: W_Q, W_K, a t5 bias", least=0, most=1e30, none="is lr_y"
        ),
    )
    steps: int | None = field(default=None, metadata=option("Updates", least=0, none="makes one pass over the text"))
    batch_size: int = field(default=20, metadata=option("Windows per update.", least=1))
    optimizer: Literal["sgd", "adam", "adamw"] = field(default="sgd", metadata=option("How gradients move parameters."))
    momentum: float = field(default=0.0, metadata=option("Momentum of sgd.", least=0, below=1))
    weight_decay: float = field(default=0.0, metadata=option("Weight decay.", least=0, most=1e30))
    clip: float | None = field(
        default=0.5, metadata=option("Largest norm of the gradient of all parameters", least=0, none="lets it be")
    )
    precision: Literal["float32", "bf16-decoder", "bf16"] = field(
        default="float32",
        metadata=option("bf16-decoder rounds the products of the decoder alone, bf16 all products; parameters stay."),
    )
    compile: bool = field(default=False, metadata=option("Compile the model with torch.compile."))
    device: Literal["cpu", "cuda"] = field(default="cpu", metadata=option("Where to compute."))
    seed: int = field(default=0, metadata=option("Seed of the start and of dropout.", least=0))
    record_every: int | None = field(
        default=None,
        metadata=option(
            "Updates between measurements of attention", least=1, none="makes 16 to 100 of them in 3% of the time"
        ),
    )
    evaluate_every: int | None = field(
        default=None,
        metadata=option("Updates between validation losses, which go with records", least=1, none="measures the last"),
    )
    patterns: int = field(
        default=4, metadata=option("Windows of the validation split whose attention is kept.", least=0)
    )

    def check_together(self) -> None:
        super().check_together()
        if self.clip == 0:
            raise InputError("clip is 0, which stops all learning: give the largest norm of the gradient, or None.")
        if self.momentum and self.optimizer != "sgd":
            raise InputError(
                f"momentum is {self.momentum} but the optimizer is {self.optimizer}: use sgd, or leave momentum out."
            )

    @property
    def rate_z(self) -> float:
        """The learning rate of what makes attention logits."""
        return self.lr_y if self.lr_z is None else self.lr_z


@dataclass(frozen=True)
class Plan:
    """When a run records and evaluates."""

    steps: int
    record_every: int
    evaluate_every: int | None = None
    measured: int | None = None
    """How many windows, evenly spread over the validation split, have their attention measured; all if None."""

    @classmethod
    def of(cls, options: TextOptions, shape: TextShape, *, per_pass: int, valid_tokens: int) -> Plan:
        """The plan that the options ask for; one pass has `per_pass` updates."""
        steps = per_pass if options.steps is None else options.steps
        if options.record_every is not None:
            return cls(steps, options.record_every, options.evaluate_every)
        every, measured = record_plan(shape, valid_tokens, options.batch_size, steps, options.precision)
        return cls(steps, every, options.evaluate_every, measured)

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
