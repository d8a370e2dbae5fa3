"""What a training run is asked to do, checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.base.errors import InputError, unknown
from scansnap.data.positioned_classes import PositionedClasses
from scansnap.data.sampling import contextual_length
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.model.architecture import BASIC, Architecture

OPTIMIZERS = ("sgd", "adam", "sign_sgd", "normalised_sgd")
DECODER_GRADIENTS = ("true", "modified")
DTYPES = ("float32", "float64")
DEVICES = ("cpu", "cuda")
STARTS = ("zeros", "uniform")
FRESH = ("fresh_loss", "fresh_accuracy")
"""Measures on sequences that no update sees."""
RECORDABLE = (
    "loss",
    "accuracy",
    *FRESH,
    "attention",
    "attention_logits",
    "entropy",
    "decoder",
    "query_decoder",
    "position_bias",
)
RECORDED = ("loss", "accuracy", "attention", "attention_logits", "entropy")
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
MOST = 10**9
"""No number of steps or of sequences may be larger."""

MOST_RECORDS = 10**7
"""Nor of records: their steps alone would fill memory."""


@dataclass(frozen=True)
class TrainOptions:
    """The options of `train` that all runs share."""

    steps: int
    batch_size: int | None
    seq_len: float
    optimizer: str
    momentum: float
    decoder_gradient: str
    dtype: str
    device: str
    record_every: int
    record: tuple[str, ...]
    architecture: Architecture = BASIC
    num_sequences: int | None = None

    @classmethod
    def checked(
        cls,
        *,
        steps: int,
        batch_size: int | None,
        seq_len: float,
        optimizer: str,
        momentum: float | None,
        decoder_gradient: str,
        dtype: str,
        device: str,
        record_every: int,
        record: Iterable[str],
        normalization: str = "l2",
        residual: bool = False,
        heads: int = 1,
        num_sequences: int | None = None,
        layers: int = 1,
        nonlinearity: str = "tanh",
    ) -> TrainOptions:
        """The options, or an `InputError` that names the first one that cannot be."""
        whole("steps", steps, least=0)
        whole("record_every", record_every, least=1)
        if steps // record_every > MOST_RECORDS:
            raise InputError(
                f"{steps:,} steps recorded every {record_every:,} are more than {MOST_RECORDS:,} records: record less "
                "often."
            )
        if batch_size is not None:
            whole("batch_size", batch_size, least=1)
        if num_sequences is not None:
            whole("num_sequences", num_sequences, least=1)
        if isinstance(seq_len, bool) or not isinstance(seq_len, Real):
            raise InputError(f"seq_len is {seq_len!r}: give a whole number of at least 2, or math.inf.")
        if seq_len != math.inf:
            contextual_length(seq_len)
        one_of("optimizer", optimizer, OPTIMIZERS)
        one_of("decoder_gradient", decoder_gradient, DECODER_GRADIENTS)
        one_of("dtype", dtype, DTYPES)
        one_of("device", device, DEVICES)
        if momentum and optimizer != "sgd":
            raise InputError(f"momentum is {momentum} but the optimizer is {optimizer}: momentum belongs to sgd.")
        if momentum is not None and not (isinstance(momentum, Real) and 0 <= momentum < 1):
            raise InputError(f"momentum is {momentum}: give a number from 0 up to, but not including, 1.")
        architecture = Architecture.checked(
            normalization=normalization, residual=residual, heads=heads, layers=layers, nonlinearity=nonlinearity
        )
        variables = recorded(record)
        check_recorded(variables, residual)
        if layers > 1:
            variables = _of_layers(variables, decoder_gradient)
        return cls(
            steps=int(steps),
            batch_size=None if batch_size is None else int(batch_size),
            seq_len=float(seq_len) if math.isinf(seq_len) else int(seq_len),
            optimizer=optimizer,
            momentum=float(momentum or 0.0),
            decoder_gradient=decoder_gradient,
            dtype=dtype,
            device=device,
            record_every=int(record_every),
            record=variables,
            architecture=architecture,
            num_sequences=None if num_sequences is None else int(num_sequences),
        )

    @property
    def record_steps(self) -> NDArray[np.int64]:
        """0, record_every, 2 record_every, ..., and the last step."""
        found = np.arange(0, self.steps + 1, self.record_every)
        return found if found[-1] == self.steps else np.append(found, self.steps)

    def described(self) -> dict[str, Any]:
        """The options as plain data."""
        found = asdict(self)
        return {**found, **found.pop("architecture"), "seq_len": str(self.seq_len)}

    @property
    def length(self) -> int:
        """Contextual tokens T - 1; 0 stands for T -> infinity."""
        return 0 if math.isinf(self.seq_len) else int(self.seq_len) - 1


@dataclass(frozen=True)
class Runs:
    """What tells runs apart: one entry each."""

    lr_y: NDArray[np.float64]
    lr_z: NDArray[np.float64]
    seed: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.seed)

    @classmethod
    def checked(cls, *, lr_y: Any, lr_z: Any, seeds: Any) -> Runs:
        """Scalars and equally long sequences, side by side."""
        given: dict[str, NDArray[Any]] = {
            "lr_y": rates("lr_y", lr_y),
            "lr_z": rates("lr_z", lr_z),
            "seeds": _seeds(seeds),
        }
        lengths = {name: len(values) for name, values in given.items() if len(values) != 1}
        if len(set(lengths.values())) > 1:
            sizes = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError(f"{sizes} entries: give single values, or sequences of one length, one entry per run.")
        count = next(iter(lengths.values()), 1)
        lr_y, lr_z, seed = (np.repeat(v, count) if len(v) == 1 else v for v in given.values())
        return cls(lr_y, lr_z, seed)


def check_bias_recorded(names: Iterable[str], classes: SequenceClasses) -> None:
    """Refuse to record a bias of positions where there are none."""
    if "position_bias" in names and not isinstance(classes, PositionedClasses):
        raise InputError("position_bias cannot be recorded: tokens of these classes do not depend on their position.")


def check_classes(classes: object) -> None:
    """Refuse anything but sequence classes."""
    if not isinstance(classes, SequenceClasses):
        raise InputError(
            f"classes is {type(classes).__name__} and not SequenceClasses: make them with SequenceClasses(...), "
            "syn_small() or read_classes(path)."
        )


def whole(name: str, value: object, *, least: int) -> None:
    """Refuse anything but a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= MOST:
        raise InputError(f"{name} is {value!r}: give a whole number from {least} to {MOST:,}.")


def one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Refuse anything but one of the allowed names."""
    if value not in allowed:
        raise unknown(name, value, allowed)


def recorded(names: Iterable[str], allowed: Sequence[str] = RECORDABLE) -> tuple[str, ...]:
    """The variables to record, in their usual order."""
    if not isinstance(names, Iterable):
        raise InputError(f"record is {names!r}: give names among {', '.join(allowed)}.")
    asked = [names] if isinstance(names, str) else list(names)
    for name in asked:
        one_of("variable to record", name, allowed)
    if not asked:
        raise InputError(f"record names nothing to keep: choose among {', '.join(allowed)}.")
    return tuple(name for name in allowed if name in asked)


def _of_layers(names: tuple[str, ...], decoder_gradient: str) -> tuple[str, ...]:
    """What is recorded of several layers; the usual variables less the logits, which are no longer one per token."""
    if decoder_gradient != "true":
        raise InputError("decoder_gradient is modified but there are several layers: Lemma 3 is about one.")
    kept = ("loss", "accuracy", "attention", "entropy")
    if names != RECORDED and (others := [name for name in names if name not in kept]):
        raise InputError(f"{', '.join(others)} cannot be recorded of several layers: choose among {', '.join(kept)}.")
    return tuple(name for name in names if name in kept)


def check_recorded(names: Iterable[str], residual: bool) -> None:
    """Refuse to record what the layer does not have."""
    if "query_decoder" in names and not residual:
        raise InputError(
            "query_decoder cannot be recorded: rows of Y of query tokens are read with residual=True only."
        )


def rates(name: str, values: Any) -> NDArray[np.float64]:
    """Learning rates as an array; a rate of zero keeps its matrix where it starts."""
    try:
        array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(f"{name} is {values!r}: give a number, or a sequence of numbers, one per run.") from None
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or (array < 0).any():
        raise InputError(f"{name} is {values!r}: give finite learning rates of at least 0.")
    return array


def _seeds(values: Any) -> NDArray[np.uint64]:
    listed = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    for seed in listed:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
            raise InputError(f"a seed is {seed!r}: give whole numbers from 0 to 2^63 - 1.")
    if not listed:
        raise InputError("seeds is empty: give one seed per run, or a single one.")
    return np.array(listed, dtype=np.uint64)
