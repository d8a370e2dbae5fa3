"""The shapes of text models, as options, and what their training and measuring costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from scansnap.runtime.errors import InputError
from scansnap.validation.options import Options, option

PER_WEIGHT = 2000
"""Operations to measure one attention weight: softmax, entropy, the search for the largest."""


@dataclass(frozen=True, kw_only=True)
class WindowOptions(Options):
    """The text as windows."""

    window: int = field(default=35, metadata=option("Tokens in a window.", least=2))


@dataclass(frozen=True, kw_only=True)
class ModelOptions(WindowOptions):
    """The transformer; the defaults are those of the published text model."""

    layers: int = field(default=1, metadata=option("Layers.", least=1))
    heads: int = field(default=1, metadata=option("Heads in each layer.", least=1))
    width: int = field(default=200, metadata=option("Width d of the model.", least=1))
    feed_forward: int = field(default=200, metadata=option("Width of the feed-forward part.", least=1))
    norm: Literal["post", "pre"] = field(
        default="post", metadata=option("LayerNorm after (post) or before (pre) each part.")
    )
    dropout: float = field(default=0.2, metadata=option("Share of activations that is dropped.", least=0, below=1))
    positions: Literal["none", "sinusoidal", "alibi", "t5"] = field(
        default="sinusoidal", metadata=option("How the model knows positions; t5 learns a bias by distance.")
    )

    def check_together(self) -> None:
        super().check_together()
        if self.width % self.heads:
            raise InputError(
                f"width is {self.width} with {self.heads} heads: give a width that is a multiple of the heads."
            )


@dataclass(frozen=True, kw_only=True)
class YZModelOptions(WindowOptions):
    """The paper's own model in Y and Z."""

    window: int = 36
    residual: bool = field(default=False, metadata=option("Whether the decoder also reads the query (Section 7)."))
    dtype: Literal["float32", "float64"] = field(default="float32", metadata=option("Type of Y and Z."))


@dataclass(frozen=True, kw_only=True)
class Vocabulary(Options):
    """The vocabulary of a model."""

    vocab_size: int = field(metadata=option("Token types.", least=1))


@dataclass(frozen=True, kw_only=True)
class TextShape(ModelOptions, Vocabulary):
    """The options of a transformer, and the size of its vocabulary."""

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
        return products + self.layers * self.window * (2 * self.width + PER_WEIGHT * self.heads)

    @property
    def measured_numbers(self) -> int:
        """Numbers that measuring attention holds per token: weights; input, queries and keys."""
        return self.heads * self.window + 3 * self.width

    def __str__(self) -> str:
        return (
            f"{self.vocab_size:,} token types, width {self.width:,}, feed-forward {self.feed_forward:,} and "
            f"{self.layers:,} layers"
        )


@dataclass(frozen=True, kw_only=True)
class YZShape(YZModelOptions, Vocabulary):
    """The options of (Y, Z), and the size of its vocabulary; it has one layer of one head."""

    @property
    def layers(self) -> int:
        return 1

    @property
    def heads(self) -> int:
        return 1

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
        return self.window * PER_WEIGHT

    @property
    def measured_numbers(self) -> int:
        """Numbers that measuring attention holds per token: logits, weights, equal tokens."""
        return 3 * self.window

    def __str__(self) -> str:
        return f"{self.vocab_size:,} token types with two entries for each pair of them"


Shape = TextShape | YZShape
