"""The options of a watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import torch

from scansnap.monitor.quantities import HeadQuantity
from scansnap.monitor.sinks import Sink
from scansnap.monitor.verdicts import HeadVerdict
from scansnap.validation.argument_types import ArgumentType, InstanceType, OptionalType
from scansnap.validation.options import Options, describe_options, option, options

P = ParamSpec("P")
First = TypeVar("First")
Result = TypeVar("Result")


class ProbeType(ArgumentType):
    """What a model is called with; the first snapshot checks whether it can be."""

    wanted = "a tensor, a tuple of arguments, a mapping of keyword arguments, or a function of the model"

    def check(self, name: str, value: Any) -> Any:
        return value


@options
class WatchOptions(Options):
    """What a watch takes besides the model."""

    probe: object = option(
        "What the model is called with at every snapshot, such as a batch: a tensor, a tuple of arguments, a "
        "mapping of keyword arguments, a list of these, or a function of the model.",
        ProbeType(),
    )
    every: int = option(
        "Steps between snapshots: one is taken where a multiple of it is reached or passed.", default=50, least=1
    )
    store: str | Path | None = option(
        "Where snapshots are written as they are taken (zarr); an existing store is continued from its last step. "
        "To begin anew, delete it or give another.",
        default=None,
    )
    record: str | Sequence[str | HeadQuantity] = option(
        'Names of quantities, or `HeadQuantity` objects; "default" stands for those that are recorded without asking.',
        default=("default",),
    )
    rows: int | None = option(
        "Rows of attention that a snapshot measures in each head.", default=256, least=1, none="measures all"
    )
    tokens: Callable[[int], str] | Sequence[str] | None = option("The names of token ids, for pictures.", default=None)
    errors: Literal["record", "raise"] = option(
        "Whether a snapshot that fails is recorded as missing, or raises.", default="record"
    )
    sinks: Sequence[Sink] = option(
        "Functions that are called with the step and the numbers of each snapshot.", default=()
    )
    start: int | None = option(
        "The steps that the model has been trained for; by default the last step in the store, or 0. After a kill "
        "give the step of your checkpoint: snapshots that the store already has are kept.",
        default=None,
    )
    ranks: Literal["first", "all"] = option(
        "Whether one process takes snapshots, or all do together, as models with tensor or pipeline parallelism need.",
        default="first",
    )
    pattern: bool = option(
        "Whether the attention among the first tokens is kept, 9 KiB for each head and snapshot.", default=True
    )
    optimizer: torch.optim.Optimizer | None = option(
        "Where the learning rate is read: a pattern that stops because the rate vanished is then not called frozen.",
        OptionalType(InstanceType(torch.optim.Optimizer, "an optimizer of torch")),
        default=None,
    )
    on_alarm: Callable[[list[HeadVerdict]], object] | None = option(
        "Called with a list of the alarms that are new at a snapshot; an exception that it raises ends the training.",
        default=None,
    )

    def with_defaults(self, **values: Any) -> WatchOptions:
        """These options with values for those that are None."""
        return replace(self, **{name: value for name, value in values.items() if getattr(self, name) is None})


def takes_watch_options(
    call: Callable[P, WatchOptions],
) -> Callable[[Callable[Concatenate[First, ...], Result]], Callable[Concatenate[First, P], Result]]:
    """A decorator for a function or a constructor that takes the options of a watch as `**kwargs`.

    `call` is `WatchOptions`: type checkers see its parameters.
    """

    def decorate(function: Callable[Concatenate[First, ...], Result]) -> Callable[Concatenate[First, P], Result]:
        describe_options(function, WatchOptions)
        return function

    return decorate
