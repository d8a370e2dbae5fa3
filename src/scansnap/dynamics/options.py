"""The options of `train` and `flow`, each stated once.

Options of one concept are stated beside it: the layer in `systems/yz/architecture.py`, the start in
`dynamics/start.py`.  This module combines them with those of training itself, and checks them against each
other and against the data.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource
from scansnap.dynamics.start import StartOptions, bias_by_bucket, prior_logits
from scansnap.dynamics.update_rules import OPTIMIZERS, SCHEDULES, Schedule, UpdateRule, check_rule
from scansnap.results.quantities import DEFAULT_QUANTITIES, QUANTITIES
from scansnap.runtime.errors import InputError, short_repr
from scansnap.systems.quantity import Quantity, RecordType
from scansnap.systems.yz.architecture import BASIC, Layer, LayerOptions
from scansnap.validation import checks
from scansnap.validation.argument_types import ArgumentType, LengthType, MemberType, read_numbers
from scansnap.validation.options import Options, defaults_of, option, options, options_of, values_of
from scansnap.validation.user_code import is_own

MOST_RECORDS = 10**7
"""More records than this would fill memory with their steps alone."""

RULE_SETTINGS = ("momentum",)
"""Options that are settings of the update rule; None leaves what the rule has."""

Rates = float | Sequence[float] | NDArray[np.floating]
Seeds = int | Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class RatesType(ArgumentType):
    """Learning rates: one, or one for each run; a rate of zero keeps its matrix where it starts."""

    def check(self, name: str, value: Any) -> float | tuple[float, ...]:
        wanted = "a finite learning rate of at least 0, or a sequence of them, one per run"
        rates = checks.series(name, value, wanted)
        if (rates < 0).any():
            raise InputError(f"{name} is {short_repr(value)}: give {wanted}.")
        return tuple(rates.tolist()) if checks.is_list(value) else float(rates[0])

    def read(self, name: str, text: str) -> list[float]:
        wanted = "a number, or several separated by commas, as 1,2,5"
        return read_numbers(name, text, float, wanted)


@dataclass(frozen=True)
class SeedsType(ArgumentType):
    """Seeds: one, or one for each run."""

    def check(self, name: str, value: Any) -> int | tuple[int, ...]:
        seeds = checks.seeds(value)
        return seeds[0] if isinstance(value, int | np.integer) else seeds

    def read(self, name: str, text: str) -> list[int]:
        """`0`, `0,1,2` or `0:10`."""
        wanted = "whole numbers, as 0 or 0,1,2 or 0:10"
        if ":" not in text:
            return read_numbers(name, text, int, wanted)
        numbers = read_numbers(name, text, int, wanted, ":")
        if len(numbers) != 2 or numbers[1] - numbers[0] > MOST_RECORDS:
            raise InputError(f"{name} is '{text}': give {wanted}, at most {MOST_RECORDS:,} of them.")
        return list(range(*numbers))


@dataclass(frozen=True)
class TimesType(ArgumentType):
    """Increasing times, in expected batch-1 steps."""

    def check(self, name: str, value: Any) -> tuple[float, ...]:
        wanted = "increasing numbers of steps of at least 0, such as [1, 1e3, 1e6]"
        times = checks.series(name, value, wanted)
        if (times < 0).any() or (np.diff(times) <= 0).any():
            raise InputError(f"{name} is {short_repr(value)}: give {wanted}.")
        return tuple(times.tolist())

    def read(self, name: str, text: str) -> list[float]:
        """Times as `1,1e3,1e6`, or `log:FIRST:LAST:COUNT`."""
        wanted = "times as 1,1e3,1e6, or log:FIRST:LAST:COUNT"
        if not text.startswith("log:"):
            return read_numbers(name, text, float, wanted)
        try:
            first, last, count = (float(part) for part in text.removeprefix("log:").split(":"))
        except ValueError:
            first = last = count = math.nan
        if not (first > 0 and last > 0 and count.is_integer()):
            raise InputError(f"{name} is '{text}': give {wanted}.")
        return [float(t) for t in np.geomspace(first, last, checks.integer("COUNT", int(count), most=MOST_RECORDS))]


@dataclass(frozen=True)
class Runs:
    """What distinguishes runs: one entry each."""

    rates: dict[str, NDArray[np.float64]]  # (R,) of each learning rate
    seed: NDArray[np.uint64]  # (R,)

    def __len__(self) -> int:
        return len(self.seed)

    def __getitem__(self, part: slice) -> Runs:
        return Runs({name: rates[part] for name, rates in self.rates.items()}, self.seed[part])

    @classmethod
    def side_by_side(cls, *, seeds: Seeds, **rates: Rates) -> Runs:
        """Single values and sequences of one length, side by side."""
        columns: dict[str, NDArray[Any]] = {name: np.atleast_1d(np.asarray(v, np.float64)) for name, v in rates.items()}
        columns["seeds"] = np.atleast_1d(np.asarray(seeds, np.uint64))
        lengths = {name: len(values) for name, values in columns.items() if len(values) != 1}
        if len(set(lengths.values())) > 1:
            words = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError(f"{words} entries: give single values, or sequences of one length, one entry per run.")
        count = next(iter(lengths.values()), 1)
        columns = {name: np.repeat(v, count) if len(v) == 1 else v for name, v in columns.items()}
        return cls(columns, columns.pop("seeds"))

    def coordinates(self) -> dict[str, NDArray[Any]]:
        """The coordinates of a result's runs."""
        return {**self.rates, "seed": self.seed.astype(np.int64)}


@options
class SeedOptions(Options):
    """Seeds and learning rates, which may differ between runs.

    A subclass states learning rates beside the seeds.
    """

    seeds: Seeds = option(
        "Seeds, one for each run, such as <0,1,2 or 0:10|range(10)>.", SeedsType(), default=0, separator=""
    )

    @classmethod
    def rate_names(cls) -> list[str]:
        """The options that are learning rates."""
        return [name for name, stated in options_of(cls).items() if isinstance(stated.type, RatesType)]

    @property
    def runs(self) -> Runs:
        """One entry for each run."""
        return Runs.side_by_side(seeds=self.seeds, **{name: getattr(self, name) for name in self.rate_names()})


def rate_meaning(of: str) -> str:
    """What a field that is a learning rate means."""
    return f"Learning rate of {of}; a list such as <1,10|[1, 10]> makes several runs."


def rate_option(of: str, *, default: Any = MISSING) -> Any:
    """A field that is a learning rate; type checkers know fields by `option` alone."""
    return option(rate_meaning(of), RatesType(), default=default, separator="")


@options
class YZRates(SeedOptions):
    """The learning rates of (Y, Z)."""

    lr_y: Rates = option(rate_meaning("the decoder Y"), RatesType(), separator="")
    lr_z: Rates = option(rate_meaning("the attention logits Z"), RatesType(), separator="")


@options
class TrainingOptions(SeedOptions):
    """Training, for every system."""

    steps: int = option(
        "The number of updates; record 0 is the start, record s the state after s updates.", axis=False, least=0
    )
    optimizer: str | UpdateRule = option(
        f"The update rule: {', '.join(OPTIMIZERS)}, or your own.", MemberType(OPTIMIZERS), default="sgd"
    )
    momentum: float | None = option(
        "Momentum of sgd", default=None, least=0, below=1, none="is the optimizer's default"
    )
    schedule: str | Schedule = option(
        f"How the learning rates change over the run: {', '.join(SCHEDULES)}, or your own.",
        MemberType(SCHEDULES),
        default="constant",
    )
    weight_decay: float = option(
        "Decoupled weight decay: each update also subtracts the rate times this share of a parameter.",
        default=0.0,
        least=0,
    )
    clip: float | None = option(
        "Gradient clipping: the largest norm of the gradient of all parameters",
        default=None,
        least=0,
        none="does not clip",
    )
    record_every: int | None = option(
        "Updates between records", default=1, axis=False, least=1, none="records only start and end"
    )
    dtype: Literal["float32", "float64"] = option("Floating-point type.", default="float32", axis=False)
    device: Literal["cpu", "cuda"] = option("Where to compute.", default="cpu", axis=False)

    @property
    def rule(self) -> UpdateRule:
        """The update rule, with those of its settings that are options."""
        rule = OPTIMIZERS.member(self.optimizer)
        given = {name: value for name in RULE_SETTINGS if (value := getattr(self, name)) is not None}
        for name in given.keys() - _settings_of(rule):
            if given.pop(name):
                owners = [other for other in OPTIMIZERS if name in _settings_of(OPTIMIZERS.member(other))]
                raise InputError(
                    f"{name} is {getattr(self, name)} but the optimizer is {OPTIMIZERS.label(self.optimizer)}: {name} "
                    f"belongs to {', '.join(owners)}."
                )
        return dataclasses.replace(rule, **given) if given else rule  # type: ignore[type-var]

    @property
    def record_steps(self) -> NDArray[np.int64]:
        """0, record_every, 2 record_every, ..., and the last step."""
        steps = np.arange(0, self.steps + 1, self.record_every or max(self.steps, 1))
        return steps if steps[-1] == self.steps else np.append(steps, self.steps)

    def check_together(self) -> None:
        _ = self.runs  # refuses sequences of different lengths
        if self.steps // (self.record_every or max(self.steps, 1)) > MOST_RECORDS:
            raise InputError(
                f"{self.steps:,} steps recorded every {self.record_every:,} are more than {MOST_RECORDS:,} records: "
                "record less often."
            )
        _ = self.rule  # refuses settings that the rule does not have
        if self.clip == 0:
            raise InputError("clip is 0, which stops all learning: give the largest norm of the gradient, or None.")

    def check_own_rule(self) -> None:
        """Refuse an optimizer of the user's own that does not work."""
        if is_own(self.rule):
            check_rule(self.rule)


@options
class BatchOptions(Options):
    """Batches and sequences of (Y, Z)."""

    batch_size: int | None = option(
        "Sequences per update", default=128, least=1, none="takes every class with its probability: the expected update"
    )
    seq_len: float = option(
        "Sequence length T: T - 1 contextual tokens and the query; <inf|math.inf> replaces counts by P(l|n) (Lemma 2).",
        LengthType(),
        default=128,
    )
    num_sequences: int | None = option(
        "Sequences in a fixed training set", default=None, least=1, none="draws new ones at every update"
    )

    @property
    def length(self) -> int:
        """Contextual tokens T - 1; 0 stands for T -> infinity."""
        return 0 if math.isinf(self.seq_len) else int(self.seq_len) - 1


ONE_LAYER = "several layers allow only loss, accuracy, attention and entropy"
UNMET_IN_LAYERS = dict.fromkeys(
    ("attention_logits", "decoder", "query_decoder", "position_bias", "fresh_loss", "fresh_accuracy"), ONE_LAYER
)
UNMET_IN_FLOWS = dict.fromkeys(("fresh_loss", "fresh_accuracy"), "flow has no batches, and so no fresh sequences")
"""Why a need of a quantity cannot be met."""


@options
class YZOptions(StartOptions, LayerOptions, ABC):
    """The gradient and the records of (Y, Z)."""

    decoder_gradient: Literal["true", "modified"] = option(
        "true is SGD's (Eq. 3), modified is Lemma 3's (Eq. 26), which the quantitative theory assumes.", default="true"
    )
    record: str | Quantity | Sequence[str | Quantity] = option(
        f"Quantities to record, among {', '.join(QUANTITIES)}, or your own.",
        RecordType(QUANTITIES),
        default=DEFAULT_QUANTITIES,
        axis=False,
        separator="",
    )

    @property
    @abstractmethod
    def missing_needs(self) -> dict[str, str]:
        """Why these runs cannot meet a need of a quantity, for each such need."""

    @property
    def recorded(self) -> tuple[Quantity, ...]:
        """The quantities to record; of the usual ones those that these runs have."""
        quantities = RecordType(QUANTITIES).members(self.record)  # type: ignore[arg-type]  # a tuple since it was checked
        if self.record != DEFAULT_QUANTITIES:
            return quantities
        return tuple(quantity for quantity in quantities if not set(quantity.needs) & set(self.missing_needs))

    def check_classes(self, classes: SequenceClasses) -> None:
        """Refuse classes that these options cannot be used with, and parts of the user's own that do not work."""
        Layer.of(self).check_own_parts()
        prior_logits(classes, self.attention_prior)  # type: ignore[arg-type]  # plain since it was checked
        absent = dict(self.missing_needs)
        if self.residual is False:
            absent.setdefault("query_decoder", "only residual=True reads the rows of Y of query tokens")
        if classes.num_buckets:
            bias_by_bucket(classes, self.position_bias)  # type: ignore[arg-type]
        else:
            absent.setdefault("position_bias", "tokens of these classes do not depend on their position")
            if self.position_bias is not None or self.learn_position_bias:
                name = "learn_position_bias" if self.position_bias is None else "position_bias"
                raise InputError(
                    f"{name} is given but tokens of these classes do not depend on their position: make "
                    "PositionedClasses, such as near_distinct(), or give positions in the classes file."
                )
        for quantity in self.recorded:
            for need in quantity.needs:
                if need in absent:
                    raise InputError(f"{quantity.name} cannot be recorded: {absent[need]}.")


@options
class DepthOptions(Options):
    """Several layers."""

    layers: int = option("Stacked layers, with a nonlinearity between them.", default=1, least=1, most=16)
    nonlinearity: Literal["tanh", "relu"] = option("The function between layers.", default="tanh")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DepthOptions, YZOptions, BatchOptions, TrainingOptions, YZRates):
    """The options of `train`.

    Vary them with `dataclasses.replace`; `write_experiment` writes them to a file.

    >>> from dataclasses import replace
    >>> options = ss.TrainOptions(lr_y=1.0, lr_z=1.0, steps=100)
    >>> replace(options, lr_y=10.0).momentum is None
    True
    """

    def check_together(self) -> None:
        TrainingOptions.check_together(self)
        self.check_start()
        if self.layers > 1:
            self._check_layers()
        elif self.nonlinearity != "tanh":
            raise InputError(
                f"nonlinearity is '{self.nonlinearity}' but there is one layer: a nonlinearity needs several layers."
            )

    def _check_layers(self) -> None:
        """Refuse what several layers cannot have."""
        if Layer.of(self) != BASIC:
            raise InputError(
                f"layers is {self.layers}: several layers always have l2 normalization, softmax, one head and a "
                "residual connection of their own; leave out normalization, attention_map, residual and heads."
            )
        if self.decoder_gradient != "true":
            raise InputError("decoder_gradient is modified but there are several layers: Lemma 3 is about one.")
        if not isinstance(self.init, str):
            raise InputError(
                "init is a pair of arrays but there are several layers: start them from 'zeros' or 'uniform'."
            )
        if self.attention_prior is not None:
            raise InputError("attention_prior is for one layer: leave it out, or give layers=1.")
        if self.nonlinearity == "relu" and self.init == "zeros":
            raise InputError("ReLU has no slope at zero, where nothing would ever move: give init='uniform', or tanh.")

    @property
    def missing_needs(self) -> dict[str, str]:
        return UNMET_IN_LAYERS if self.layers > 1 else {}

    def check_data(self, source: DataSource) -> None:
        """Refuse data that these options cannot be used with, and parts of the user's own that do not work."""
        self.check_own_rule()
        self.check_classes(source.classes)
        source.check_length(self.seq_len)
        source.check_repeats(self.runs.seed, self.batch_size, self.length)
        if source.classes.num_buckets:
            if self.layers > 1:
                raise InputError("tokens depend on their position, which is for one layer: give layers=1.")
            if self.num_sequences is not None:
                raise InputError(
                    "num_sequences is given but tokens depend on their position: fixed sets are for other classes."
                )
            if self.batch_size is None and self.length:
                raise InputError(
                    "batch_size is None and tokens depend on their position: give a batch size, or seq_len=math.inf."
                )


@options
class TimeOptions(Options):
    """Integration of the flow."""

    times: Sequence[float] | NDArray[np.floating] = option(
        "Times to record, in expected batch-1 steps, as <1,1e3,1e6 or log:FIRST:LAST:COUNT|[1, 1e3, 1e6]>.",
        TimesType(),
        axis=False,
        separator="",
    )
    rtol: float = option(
        "Relative error allowed in each step of the integration: 1e-14 to 0.1.", default=1e-8, least=1e-14, most=0.1
    )
    atol: float = option(
        "Absolute error allowed in each step of the integration: 1e-14 to 0.1.", default=1e-10, least=1e-14, most=0.1
    )


@dataclass(frozen=True, kw_only=True)
class FlowingOptions(TimeOptions, SeedOptions):
    """How any system is integrated."""

    dtype: ClassVar[str] = "float64"

    def check_together(self) -> None:
        _ = self.runs  # refuses sequences of different lengths


@dataclass(frozen=True, kw_only=True)
class FlowOptions(YZOptions, FlowingOptions, YZRates):
    """The options of `flow`.

    >>> options = ss.FlowOptions(lr_y=0.5, lr_z=0.05, times=[1, 10])
    >>> ss.flow("single-common", **vars(options))["loss"].shape
    (1, 2)
    """

    def check_together(self) -> None:
        FlowingOptions.check_together(self)
        self.check_start()

    @property
    def missing_needs(self) -> dict[str, str]:
        return UNMET_IN_FLOWS

    def check_data(self, source: DataSource) -> None:
        """Refuse data that these options cannot be used with, and parts of the user's own that do not work."""
        self.check_classes(source.classes)


@options
class SweepExecution(Options):
    """How a sweep is executed; no effect on the numbers."""

    memory: float | None = option(
        "GiB of memory that training may use",
        default=None,
        axis=False,
        least=1e-6,
        most=1e6,
        none="takes a quarter of all",
    )
    shard_size: int | None = option(
        "The largest number of runs in a shard",
        default=None,
        axis=False,
        least=1,
        none="takes a number that shows progress",
    )
    cluster: str | None = option(
        "ray for a cluster on this machine, or the address of a cluster.", default=None, axis=False
    )
    retries: int = option("How often to retry a shard that fails.", default=2, axis=False, least=0)


START_AND_BATCH_OPTIONS = {
    "record",
    "record_every",
    "steps",
    "dtype",
    *options_of(TimeOptions),
    *options_of(StartOptions),
}
START_AND_BATCH_OPTIONS |= set(options_of(BatchOptions))
"""Options that an engine gets as a start, as batches, or not at all."""


def _settings_of(rule: UpdateRule) -> set[str]:
    return {setting.name for setting in dataclasses.fields(rule)} if dataclasses.is_dataclass(rule) else set()


def unknown_options(options: Options, known: Collection[str]) -> list[str]:
    """The options with another value than their default that an engine with these names does not know."""
    rates = options.rate_names() if isinstance(options, SeedOptions) else []
    used = {"seeds", *rates, *START_AND_BATCH_OPTIONS, *known}
    defaults = defaults_of(type(options))
    return [name for name, value in values_of(options).items() if name not in used and value != defaults.get(name)]
