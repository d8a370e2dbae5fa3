"""The options of text models and of their training, and when a run records.

`ModelOptions` and `YZModelOptions` describe the models, `TextOptions` and `YZTextOptions` whole runs.  A shape is a
model's options with the size of its vocabulary: what a model is built from, and what its training and measuring cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.update_rules import SCHEDULES, Schedule
from scansnap.runtime.errors import InputError
from scansnap.validation.argument_types import MemberType
from scansnap.validation.checks import one_of
from scansnap.validation.options import Options, from_names, option, options, options_of

OPERATIONS_PER_WEIGHT = 2000
"""Operations to measure one attention weight: softmax, entropy, the search for the largest."""


@options
class WindowOptions(Options):
    """Windows of the text."""

    window: int = option("Tokens in a window.", default=35, least=2)


@options
class ModelOptions(WindowOptions):
    """The transformer; the defaults are those of the published text model."""

    layers: int = option("Layers.", default=1, least=1)
    heads: int = option("Heads in each layer.", default=1, least=1)
    width: int = option("Width d of the model.", default=200, least=1)
    feed_forward: int = option("Width of the feed-forward part.", default=200, least=1)
    norm: Literal["post", "pre"] = option("LayerNorm after (post) or before (pre) each part.", default="post")
    dropout: float = option("Dropout probability.", default=0.2, least=0, below=1)
    positions: Literal["none", "sinusoidal", "alibi", "t5"] = option(
        "How the model knows positions; t5 learns a bias by distance.", default="sinusoidal"
    )

    def check_together(self) -> None:
        super().check_together()
        if self.width % self.heads:
            raise InputError(
                f"width is {self.width} with {self.heads} heads: give a width that is a multiple of the heads."
            )


@options
class YZModelOptions(WindowOptions):
    """The paper's own model in Y and Z."""

    window: int = 36
    residual: bool = option("Whether the decoder also reads the query (Section 7).", default=False)
    dtype: Literal["float32", "float64"] = option("Type of Y and Z.", default="float32")


@options
class TextShape(ModelOptions):
    """The options of a transformer, and the size of its vocabulary."""

    vocab_size: int = option("Token types.", least=1)

    @property
    def layer_size(self) -> int:
        """The number of entries in a layer's matrices."""
        return 4 * self.width**2 + 2 * self.width * self.feed_forward

    @property
    def training_operations(self) -> int:
        """Operations of an update per token: one product forward and two backward with every matrix."""
        return 6 * (self.vocab_size * self.width + self.layers * self.layer_size)

    @property
    def measuring_operations(self) -> int:
        """Operations to measure attention per token; of the last layer, queries and keys are enough."""
        products = 2 * ((self.layers - 1) * self.layer_size + 2 * self.width**2)
        return products + self.layers * self.window * (2 * self.width + OPERATIONS_PER_WEIGHT * self.heads)

    @property
    def measured_numbers(self) -> int:
        """Numbers that measuring attention holds per token: weights; input, queries and keys."""
        return self.heads * self.window + 3 * self.width

    def __str__(self) -> str:
        return (
            f"{self.vocab_size:,} token types, width {self.width:,}, feed-forward {self.feed_forward:,} and "
            f"{self.layers:,} layers"
        )


@options
class YZShape(YZModelOptions):
    """The options of (Y, Z), and the size of its vocabulary; it has one layer of one head."""

    layers: ClassVar[int] = 1
    heads: ClassVar[int] = 1
    vocab_size: int = option("Token types.", least=1)

    @property
    def parameter_bytes(self) -> int:
        """The size of Y and Z."""
        return 2 * self.vocab_size**2 * (8 if self.dtype == "float64" else 4)

    @property
    def training_operations(self) -> int:
        """Operations of an update per token: three products of (T, T) weights and T rows of M entries."""
        return 6 * self.vocab_size * self.window

    @property
    def measuring_operations(self) -> int:
        """Operations to measure attention per token."""
        return self.window * OPERATIONS_PER_WEIGHT

    @property
    def measured_numbers(self) -> int:
        """Numbers that measuring attention holds per token: logits, weights, equal tokens."""
        return 3 * self.window

    def __str__(self) -> str:
        return f"{self.vocab_size:,} token types with two entries for each pair of them"


Shape = TextShape | YZShape

MEASURING_SHARE = 0.0125
"""Operations to measure attention per operation of training.  The share of time is up to twice that: its products are
smaller."""

FEWEST_RECORDS, MOST_RECORDS, FEWEST_WINDOWS = 16, 100, 64
"""The fewest and the most records by default, and the fewest windows of the validation split that each measures."""

ModelName = Literal["transformer", "yz"]

LARGE_MODEL = 2**30
"""Bytes of a model from which on it is written only if asked for."""


@options
class RunOptions(WindowOptions):
    """The run, for both models."""

    model: ModelName = option(
        "What is trained: a regular transformer, or the paper's own model with Y and Z of all tokens.",
        default="transformer",
    )
    lr_y: float = option("Learning rate of all parameters but those of <--lr-z|lr_z>.", default=5.0, least=0, most=1e30)
    lr_z: float | None = option(
        "Learning rate of the attention logits: of Z, or of W_Q, W_K and a t5 bias",
        default=None,
        least=0,
        most=1e30,
        none="is lr_y",
    )
    schedule: str | Schedule = option(
        f"How both rates change over the run: {', '.join(SCHEDULES)}, or your own.",
        MemberType(SCHEDULES),
        default="constant",
    )
    steps: int | None = option("Updates", default=None, least=0, none="makes one pass over the text")
    batch_size: int = option("Windows per update.", default=20, least=1)
    device: Literal["cpu", "cuda"] = option("Where to compute.", default="cpu")
    record_every: int | None = option(
        "Updates between measurements of attention",
        default=None,
        least=1,
        none="makes 16 to 100 of them in 3% of the time",
    )
    evaluate_every: int | None = option(
        "Updates between validation losses", default=None, least=1, none="measures the last"
    )
    patterns: int = option("Windows of the validation split whose attention is recorded.", default=4, least=0)
    save_model: Literal["auto", "always", "never"] = option(
        "Whether to write the trained model beside the result; auto does so up to 1 GiB.", default="auto"
    )

    def check_together(self) -> None:
        super().check_together()
        if not isinstance(self, OPTIONS[self.model]):
            raise InputError(
                f"model is {self.model}, but these are {type(self).__name__}: give {OPTIONS[self.model].__name__}."
            )

    def saves_model(self, size: int) -> bool:
        """Whether a trained model of this size, in bytes, is written beside the result."""
        return size <= LARGE_MODEL if self.save_model == "auto" else self.save_model == "always"

    @property
    def rate_z(self) -> float:
        """The learning rate of what makes attention logits."""
        return self.lr_y if self.lr_z is None else self.lr_z


@options
class TextOptions(ModelOptions, RunOptions):
    """The training of a transformer; the defaults are those of the published text experiment (Figure 7).

    >>> ss.TextOptions(steps=60, width=32, feed_forward=32).lr_y
    5.0
    """

    optimizer: Literal["sgd", "adam", "adamw"] = option("The optimizer.", default="sgd")
    momentum: float = option("Momentum of sgd.", default=0.0, least=0, below=1)
    weight_decay: float = option("Weight decay.", default=0.0, least=0, most=1e30)
    clip: float | None = option(
        "Largest norm of the gradient of all parameters", default=0.5, least=0, none="lets it be"
    )
    restart_every: int | None = option(
        "Updates after which the optimizer forgets its moments", default=None, least=1, none="never forgets them"
    )
    precision: Literal["float32", "bf16-decoder", "bf16"] = option(
        "bf16-decoder rounds the products of the decoder alone, bf16 all products; parameters stay.", default="float32"
    )
    compile: bool = option("Compile the model with torch.compile.", default=False)
    seed: int = option("Seed of the start and of dropout.", default=0, least=0)

    def check_together(self) -> None:
        super().check_together()
        if self.clip == 0:
            raise InputError("clip is 0, which stops all learning: give the largest norm of the gradient, or None.")
        if self.momentum and self.optimizer != "sgd":
            raise InputError(
                f"momentum is {self.momentum} but the optimizer is {self.optimizer}: use sgd, or leave momentum out."
            )


@options
class YZTextOptions(YZModelOptions, RunOptions):
    """The training of Y and Z: plain SGD from zero, so that nothing is random.

    >>> ss.YZTextOptions(lr_z=3.0).lr_y
    30.0
    """

    model: ModelName = "yz"
    lr_y: float = 30.0
    batch_size: int = 64
    queries: int = option("The most frequent tokens whose rows of Z and winners are recorded.", default=30, least=0)


OPTIONS: dict[str, type[TextOptions] | type[YZTextOptions]] = {"transformer": TextOptions, "yz": YZTextOptions}
"""The options of each model."""


@dataclass(frozen=True, kw_only=True)
class AnyTextOptions(TextOptions, YZTextOptions):
    """The options of all models: what can be named."""


def text_options(kwargs: Mapping[str, Any]) -> TextOptions | YZTextOptions:
    """The options of the model that `kwargs` names; an option of another model is refused."""
    model = one_of("model", kwargs.get("model", RunOptions.model), OPTIONS)
    for name in kwargs:
        if name in options_of(AnyTextOptions) and name not in options_of(OPTIONS[model]):
            other = next(other for other in OPTIONS if name in options_of(OPTIONS[other]))
            raise InputError(
                f"{name} is an option of the model {other}, not of {model}: leave it out, or train {other}."
            )
    return from_names(OPTIONS[model], kwargs)


@dataclass(frozen=True)
class RecordSchedule:
    """When a run records and evaluates."""

    steps: int
    record_every: int
    evaluate_every: int | None = None
    measured: int | None = None
    """The number of windows, evenly spread over the validation split, whose attention is measured; None for all."""

    @classmethod
    def of(
        cls, options: TextOptions | YZTextOptions, shape: Shape, *, per_pass: int, valid_tokens: int
    ) -> RecordSchedule:
        """The schedule that the options ask for; one pass has `per_pass` updates."""
        steps = per_pass if options.steps is None else options.steps
        if options.record_every is not None:
            return cls(steps, options.record_every, options.evaluate_every)
        precision = options.precision if isinstance(options, TextOptions) else "float32"
        every, measured = default_records(shape, valid_tokens, options.batch_size, steps, precision)
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


def default_records(
    shape: Shape, valid_tokens: int, batch_size: int, steps: int, precision: str
) -> tuple[int, int | None]:
    """The default number of updates between records, and the number of windows that each measures (None for all).

    Measuring takes `MEASURING_SHARE` of the operations of training.  The whole split is measured as often as that
    allows, but `FEWEST_RECORDS` to `MOST_RECORDS` times.  If even the fewest are too many, each record measures fewer
    windows, but at least `FEWEST_WINDOWS`.  In bf16 an operation of training takes half the time, but one of measuring
    does not.
    """
    per_token = shape.measuring_operations
    training = batch_size * shape.window * shape.training_operations
    allowed = MEASURING_SHARE * training * (1.0 if precision == "float32" else 0.5)  # for each update
    every = max(math.ceil(valid_tokens * per_token / allowed), math.ceil(steps / MOST_RECORDS), 1)
    every = min(every, max(1, steps // FEWEST_RECORDS))
    windows = max(FEWEST_WINDOWS, int(every * allowed / (per_token * shape.window)))
    return every, windows if windows * shape.window < valid_tokens else None
