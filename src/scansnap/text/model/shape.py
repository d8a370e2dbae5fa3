"""The shape of a text transformer, as options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from scansnap.base.errors import InputError
from scansnap.base.options import Options, option


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
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
    window: int = field(default=35, metadata=option("Tokens in a window.", least=2))

    def check_together(self) -> None:
        if self.width % self.heads:
            raise InputError(
                f"width is {self.width} with {self.heads} heads: give a width that is a multiple of the heads."
            )


@dataclass(frozen=True, kw_only=True)
class TextShape(ModelOptions):
    """The options of a transformer, and the size of its vocabulary."""

    vocab_size: int = field(metadata=option("Token types.", least=1))

    @property
    def layer_size(self) -> int:
        """The number of entries in a layer's matrices."""
        return 4 * self.width**2 + 2 * self.width * self.feed_forward
