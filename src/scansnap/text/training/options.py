"""The options of a text training run, checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError
from scansnap.text.model.shape import ModelOptions, Shape, WindowOptions, YZModelOptions
from scansnap.text.training.schedules import SCHEDULES, Schedule
from scansnap.validation.argument_types import MemberType
from scansnap.validation.checks import one_of
from scansnap.validation.options import from_names, option, options_of

MEASURING = 0.0125
"""Operations to measure attention per operation of training.  The share of time is up to twice that: its products are
smaller."""

FEWEST, MOST, SAMPLED = 16, 100, 64
"""The fewest and the most records by default, and the fewest windows of the validation split that each measures."""

ModelName = Literal["transformer", "yz"]


@dataclass(frozen=True, kw_only=True)
class RunOptions(WindowOptions):
    """The run, whatever the model."""

    model: ModelName = field(
        default="transformer",
        metadata=option("What is trained: a regular transformer, or the paper's own model with Y and Z of all tokens."),
    )
    lr_y: float = field(
        default=5.0, metadata=option("Learning rate of all parameters but those of --lr-z.", least=0, most=1e30)
    )
    lr_z: float | None = field(
        default=None,
        metadata=option(
            "Learning rate of what makes attention logits: Z, or W_Q, W_K, a t5 bias",
            least=0,
            most=1e30,
            none="is lr_y",
        ),
    )
    schedule: str | Schedule = field(
        default="constant",
        metadata=option(
            f"How both rates change over the run: {', '.join(SCHEDULES)}, or your own.", MemberType(SCHEDULES)
        ),
    )
    steps: int | None = field(default=None, metadata=option("Updates", least=0, none="makes one pass over the text"))
    batch_size: int = field(default=20, metadata=option("Windows per update.", least=1))
    device: Literal["cpu", "cuda"] = field(default="cpu", metadata=option("Where to compute."))
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
        if not isinstance(self, OPTIONS[self.model]):
            raise InputError(
                f"model is {self.model}, but these are {type(self).__name__}: give {OPTIONS[self.model].__name__}."
            )

    @property
    def rate_z(self) -> float:
        """The learning rate of what makes attention logits."""
        return self.lr_y if self.lr_z is None else self.lr_z


@dataclass(frozen=True, kw_only=True)
class TextOptions(ModelOptions, RunOptions):
    """The training of a transformer; the defaults are those of the published text experiment (Figure 7).

    >>> ss.TextOptions(steps=60, width=32, feed_forward=32).lr_y
    5.0
    """

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
    seed: int = field(default=0, metadata=option("Seed of the start and of dropout.", least=0))

    def check_together(self) -> None:
        super().check_together()
        if self.clip == 0:
            raise InputError("clip is 0, which stops all learning: give the largest norm of the gradient, or None.")
        if self.momentum and self.optimizer != "sgd":
            raise InputError(
                f"momentum is {self.momentum} but the optimizer is {self.optimizer}: use sgd, or leave momentum out."
            )


@dataclass(frozen=True, kw_only=True)
class YZTextOptions(YZModelOptions, RunOptions):
    """The training of Y and Z: plain SGD from zero, so that nothing is random.

    >>> ss.YZTextOptions(lr_z=3.0).lr_y
    30.0
    """

    model: ModelName = "yz"
    lr_y: float = 30.0
    batch_size: int = 64
    queries: int = field(
        default=30, metadata=option("Most frequent tokens whose row of Z is kept, and whose winners are.", least=0)
    )


OPTIONS: dict[str, type[TextOptions] | type[YZTextOptions]] = {"transformer": TextOptions, "yz": YZTextOptions}
"""The options of each model."""


@dataclass(frozen=True, kw_only=True)
class AnyTextOptions(TextOptions, YZTextOptions):
    """The options of all models: what can be named."""


def text_options(words: Mapping[str, Any]) -> TextOptions | YZTextOptions:
    """The options of the model that the words name; an option of another model is refused."""
    model = one_of("model", words.get("model", RunOptions.model), OPTIONS)
    for name in words:
        if name in options_of(AnyTextOptions) and name not in options_of(OPTIONS[model]):
            other = next(other for other in OPTIONS if name in options_of(OPTIONS[other]))
            raise InputError(
                f"{name} is an option of the model {other}, not of {model}: leave it out, or train {other}."
            )
    return from_names(OPTIONS[model], words)


@dataclass(frozen=True)
class Plan:
    """When a run records and evaluates."""

    steps: int
    record_every: int
    evaluate_every: int | None = None
    measured: int | None = None
    """How many windows, evenly spread over the validation split, have their attention measured; all if None."""

    @classmethod
    def of(cls, options: TextOptions | YZTextOptions, shape: Shape, *, per_pass: int, valid_tokens: int) -> Plan:
        """The plan that the options ask for; one pass has `per_pass` updates."""
        steps = per_pass if options.steps is None else options.steps
        if options.record_every is not None:
            return cls(steps, options.record_every, options.evaluate_every)
        precision = options.precision if isinstance(options, TextOptions) else "float32"
        every, measured = record_plan(shape, valid_tokens, options.batch_size, steps, precision)
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


def record_plan(shape: Shape, valid_tokens: int, batch_size: int, steps: int, precision: str) -> tuple[int, int | None]:
    """The default number of updates between records, and the number of windows that each measures (None for all).

    Measuring takes the share `MEASURING` of the operations of training.  The whole split is measured as often as that
    allows, but `FEWEST` to `MOST` times; if even `FEWEST` is too often, each record measures fewer windows, but at
    least `SAMPLED`.  In bf16 an operation of training takes half the time, but one of measuring does not.
    """
    per_token = shape.measuring_operations
    training = batch_size * shape.window * shape.training_operations
    allowed = MEASURING * training * (1.0 if precision == "float32" else 0.5)  # for each update
    every = max(math.ceil(valid_tokens * per_token / allowed), math.ceil(steps / MOST), 1)
    every = min(every, max(1, steps // FEWEST))
    windows = max(SAMPLED, int(every * allowed / (per_token * shape.window)))
    return every, windows if windows * shape.window < valid_tokens else None
