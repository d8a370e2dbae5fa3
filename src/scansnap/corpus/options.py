"""The options of counting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from scansnap.validation.options import Options, option

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class CountOptions(Options):
    """What is counted."""

    window: int = field(
        default=35,
        metadata=option("Tokens in a window: the query and those before it that count.", least=2, most=10**6),
    )
    split: Literal["train", "valid", "test", "all"] = field(
        default="all",
        metadata=option("The part of the text to count; train and valid hold out the end of a text without splits."),
    )
    least: int = field(
        default=1,
        metadata=option(
            "How often a triple (token, query, next token) must occur in the whole text to be kept.", least=1
        ),
    )


@dataclass(frozen=True, kw_only=True)
class CountExecution(Options):
    """How counting is executed; no effect on the numbers."""

    memory: float = field(
        default=0.5, metadata=option("GiB for text and buffers; the rest stays on disk.", least=1e-3, most=1e6)
    )
    cluster: str | None = field(
        default=None,
        metadata=option(
            "ray for a cluster on this machine, or the address of a cluster that shares the output folder."
        ),
    )
    retries: int = field(default=2, metadata=option("How often to retry work after its worker was lost.", least=0))
