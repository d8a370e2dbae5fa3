"""The options of `shortcuts`."""

from __future__ import annotations

from dataclasses import dataclass, field

from scansnap.corpus.options import FileOptions
from scansnap.validation.options import Options, option


@dataclass(frozen=True, kw_only=True)
class RowOptions(FileOptions):
    """Which rows are read."""

    split: str | None = field(
        default=None, metadata=option("The split to read: files or folders of this name", none="reads all")
    )


@dataclass(frozen=True, kw_only=True)
class EvidenceOptions(Options):
    """What is tested, and what counts as evidence."""

    level: float = field(
        default=0.05,
        metadata=option(
            "The chance that any feature at all is called a shortcut where none is, over all features and labels.",
            least=1e-12,
            most=0.5,
        ),
    )
    least: int = field(default=5, metadata=option("How many rows must have a feature for it to be tested.", least=2))
    pairs: int = field(
        default=20_000, metadata=option("The most frequent pairs of adjacent words to test.", least=0, most=10**7)
    )
    texts: int = field(
        default=200_000, metadata=option("Different texts to test; of more, this many are drawn.", least=8)
    )
    seed: int = field(default=0, metadata=option("Seed of all random draws.", least=0))


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(Options):
    """How attention is trained."""

    attention: bool = field(default=False, metadata=option("Whether to train attention on the words."))
    updates: int = field(default=5000, metadata=option("Updates of Y and Z.", least=1, most=10**7))
    lr_y: float = field(default=1.0, metadata=option("Learning rate of the decoder Y.", least=1e-6, most=1e3))
    lr_z: float = field(default=1.0, metadata=option("Learning rate of the attention logits Z.", least=1e-6, most=1e3))
    batch_size: int = field(default=32, metadata=option("Texts in an update.", least=1, most=10**6))
    vocabulary: int = field(
        default=400,
        metadata=option("Words that it reads: those that look distinct, then frequent ones.", least=2, most=10**5),
    )
    sample: int = field(default=4000, metadata=option("Texts to train on.", least=8, most=10**6))


@dataclass(frozen=True, kw_only=True)
class ShortcutOptions(AttentionOptions, EvidenceOptions, RowOptions):
    """The options of `shortcuts`."""
