"""The options of a prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from scansnap.text.model.shape import YZModelOptions
from scansnap.text.predictions.methods import PREDICTORS, Predictor
from scansnap.text.predictions.plan import Plan
from scansnap.text.training.options import YZTextOptions
from scansnap.validation.argument_types import ArgumentType, MemberType, SequenceType, read_number
from scansnap.validation.checks import integer, is_list
from scansnap.validation.options import Options, option

WORDS = SequenceType(ArgumentType(), "words")


@dataclass(frozen=True)
class QueriesType(ArgumentType):
    """How many queries, or which."""

    wanted = "a number of words, or words"

    def check(self, name: str, value: Any) -> int | tuple[str, ...]:
        words: tuple[str, ...] = WORDS.check(name, value) if is_list(value) else ()
        return words or integer(name, value, least=1)

    def read(self, name: str, text: str) -> Any:
        return read_number(name, text, int, self.wanted) if text.isdigit() else text.split(",")

    def plain(self, value: Any) -> Any:
        return value if isinstance(value, int) else list(value)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Options):
    """What is predicted, and how.

    >>> ss.PredictOptions(queries=5).tokens
    3000
    """

    queries: int | tuple[str, ...] = field(
        default=30,
        metadata=option("The number of queries, the most frequent words of the text, or the words.", QueriesType()),
    )
    tokens: int = field(default=3000, metadata=option("Most frequent tokens that are ranked.", least=2))
    least: int = field(default=10, metadata=option("How often a token must precede the query to be ranked.", least=1))
    method: str | Predictor = field(
        default="settled",
        metadata=option(f"How to predict: {', '.join(PREDICTORS)}, or your own.", MemberType(PREDICTORS)),
    )
    lr_y: float = field(
        default=30.0,
        metadata=option(
            "Learning rate of Y in the training to predict, for population and the times of scan and snap.",
            least=1e-12,
            most=1e12,
        ),
    )
    lr_z: float | None = field(
        default=None,
        metadata=option(
            "Learning rate of Z in the training to predict, for population", least=1e-12, most=1e12, none="is lr_y"
        ),
    )
    steps: int | None = field(
        default=None,
        metadata=option(
            f"Updates of the training to predict, of {YZTextOptions.batch_size} windows each, for population",
            least=1,
            most=10**12,
            none="makes one pass over the text",
        ),
    )
    window: int = field(
        default=YZModelOptions.window,
        metadata=option("Tokens in a window of the text; counts have their own.", least=3),
    )
    control: bool = field(
        default=False,
        metadata=option("Also predict from the text with next tokens shuffled over the occurrences of each query."),
    )
    seed: int = field(default=0, metadata=option("Seed of the shuffle.", least=0))
    device: Literal["cpu", "cuda"] = field(default="cpu", metadata=option("Where to compute."))

    def plan(self, num_tokens: int) -> Plan:
        """The training that is asked about, of a text of so many tokens."""
        pass_ = max(1, num_tokens // self.window // YZTextOptions.batch_size)
        lr_z = self.lr_y if self.lr_z is None else self.lr_z
        return Plan(self.lr_y, lr_z, pass_ if self.steps is None else self.steps)
