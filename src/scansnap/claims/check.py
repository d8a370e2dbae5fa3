"""Checks: comparisons of a prediction with exact dynamics, in a setting.

Each comparison has a role:

- `assumed`     in a setting that meets what the statement assumes: this decides whether it holds;
- `beyond`      where an assumption is dropped (true SGD, finite T, eta_Y/eta_Z of one, momentum): this decides whether
                it holds under its assumptions only;
- `corrected`   the statement as it should read, where it fails as published;
- `contrast`    something to compare with, which decides nothing.

Each comparison is made twice, with the prediction as it is and with one that is wrong on purpose, so that every
measurement says whether it could have failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import single_common
from scansnap.runtime.errors import InputError, number_text, short_repr, unknown
from scansnap.theory.overlap import Form, directions, overlaps
from scansnap.theory.reduced_dynamics import DecoderGradient
from scansnap.validation.checks import numbers

Role = Literal["assumed", "beyond", "corrected", "contrast"]
Comparison = Literal["equal", "at most", "at least", "positive"]

DEVIATIONS: dict[Comparison, str] = {
    "equal": "relative error",
    "at most": "share of the bound",
    "at least": "share of the bound",
    "positive": "share of wrong signs",
}
"""What the deviation of each comparison is."""

ROLES: dict[Role, str] = {
    "assumed": "under the assumptions of its proof",
    "beyond": "where an assumption is dropped",
    "corrected": "as it should read",
    "contrast": "for comparison",
}
"""What each role is called in words."""

GRADIENT_ROLES: tuple[tuple[DecoderGradient, Role], ...] = (("modified", "assumed"), ("true", "beyond"))
"""Decoder gradients in their usual roles: most statements assume the modified one, and SGD has the true one."""

FORM_ROLES: tuple[tuple[Form, Role], ...] = (("published", "assumed"), ("exact", "corrected"))
"""The forms of a statement that fails as published, with their roles."""


WRONG_FACTOR = 1.5
"""What makes a prediction wrong on purpose in a claim about signs, where a comparison is not of signs."""

MAX_RATE = 1e6
"""The largest rate at which claims are checked: beyond it, what they compare is rounding."""


def check_rates(*, lr_y: float | None, lr_z: float | None) -> None:
    """Refuse learning rates that are not positive numbers; None stands for a claim's own rate."""
    for name, rate in (("lr_y", lr_y), ("lr_z", lr_z)):
        if rate is not None and numbers(name, rate, above=0) > MAX_RATE:
            raise InputError(f"{name} is {rate:g}: give a rate of at most {MAX_RATE:g}.")


@dataclass(frozen=True)
class Setting:
    """The classes and learning rates that a claim is checked on; time runs in steps of batch 1.

    >>> ss.Setting(ss.syn_small(), lr_y=1.0, lr_z=1.0).lr_y
    1.0
    """

    classes: SequenceClasses
    lr_y: float = 0.5
    lr_z: float = 0.0005

    def __post_init__(self) -> None:
        check_rates(lr_y=self.lr_y, lr_z=self.lr_z)

    @property
    def probs(self) -> NDArray[np.float64]:
        """P(l|n) over the contextual tokens alone (K x S): the columns that the engine keeps."""
        return self.classes.probs[:, self.classes.contextual_tokens]

    @property
    def rates(self) -> dict[str, Any]:
        """The learning rates as keyword arguments."""
        return {"lr_y": self.lr_y, "lr_z": self.lr_z}

    @property
    def sizes(self) -> dict[str, Any]:
        """M and K as keyword arguments of functions of `theory`."""
        return {"vocab_size": self.classes.vocab_size, "num_classes": self.classes.num_classes}

    @property
    def overlap(self) -> float:
        """The largest overlap of two classes at the start."""
        return float(overlaps(directions(self.probs)).max())


def classes_in_words(classes: SequenceClasses) -> str:
    """What tells classes of one size apart: their largest overlap at the start, and how many distinct tokens they have.

    >>> from scansnap.claims.check import classes_in_words
    >>> classes_in_words(ss.single_common(num_distinct=20))
    'overlap 0.117, 20 distinct tokens a class'
    """
    counts = [len(classes.distinct_tokens(i)) for i in range(classes.num_classes)]
    tokens = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f"overlap {Setting(classes).overlap:.3g}, {tokens} distinct token{'s' * (max(counts) != 1)} a class"


def assumed_setting() -> Setting:
    """Three classes of one query with one common token and 1600 tokens, eta_Y/eta_Z = 1000: all assumptions are met.

    The overlap o = 0.158 has eigenvalues 2 o < 1/3 and |-o| >= 6/sqrt(1600).  For K symmetric classes the two sides of
    Assumption 2 can hold only if M > 36 K^2 (K-1)^2: 1,296 tokens for three classes, 291,600 for ten.

    >>> setting = ss.assumed_setting()
    >>> setting.classes.num_classes, setting.lr_y / setting.lr_z
    (3, 1000.0)
    """
    return Setting(single_common(num_classes=3, num_distinct=14, vocab_size=1600))


@dataclass(frozen=True)
class Measurement:
    """One comparison: at the point where they differ most, what was predicted and what was measured."""

    label: str
    role: Role
    predicted: float
    measured: float
    deviation: float  # `deviation_is` says what it is
    allowed: float
    holds: bool
    notices: bool  # it holds, and with the prediction wrong on purpose it does not
    kind: Comparison

    @property
    def deviation_is(self) -> str:
        """What the deviation is: a relative error, the share of a bound that is used up, or of wrong signs."""
        return DEVIATIONS[self.kind]

    @property
    def predicted_text(self) -> str:
        """The prediction in words: a number, a bound, or what holds of all values."""
        number = number_text(self.predicted, ".4g")
        words = {"at most": f"≤ {number}", "at least": f"≥ {number}", "positive": "all positive"}
        return words.get(self.kind, number)

    @property
    def measured_text(self) -> str:
        """What was measured in the same words."""
        return f"{100 * self.measured:.4g}% positive" if self.kind == "positive" else number_text(self.measured, ".4g")


@dataclass(frozen=True)
class Curve:
    """The lines of a claim's picture over one axis.

    >>> ss.Curve(np.arange(3.0), {"squares": np.arange(3.0) ** 2}, "number", "square", log_x=False).lines["squares"]
    array([0., 1., 4.])
    """

    x: NDArray[np.float64]
    lines: dict[str, NDArray[np.float64]]
    x_label: str
    y_label: str
    log_x: bool = True
    log_y: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)  # named places on the x axis
    dots: tuple[str, ...] = ()  # lines whose points are not joined

    def __post_init__(self) -> None:
        if not self.lines:
            raise InputError("a curve has no lines: give at least one.")
        for text in (self.x_label, self.y_label, *self.lines, *self.marks):
            if not isinstance(text, str):
                raise InputError(f"a curve has {short_repr(text)} in place of a label: give a string.")
        places = np.asarray(self.x, np.float64).shape
        for name, values in self.lines.items():
            shape = np.asarray(values, np.float64).shape
            if len(places) != 1 or shape != places:
                raise InputError(
                    f"the line '{name}' of a curve has shape {shape} over an x axis of shape {places}: "
                    "give one number for each place on the axis."
                )
        for name in self.dots:
            if name not in self.lines:
                raise unknown("line", name, self.lines)


@dataclass
class Check:
    """The argument of a claim's check function: the setting, and methods that compare predictions with measurements.

    >>> check = ss.Check(ss.assumed_setting())
    >>> check.equal("two times two", 4.0, 2.0 * 2.0, tolerance=1e-12)
    >>> check.measurements[0].deviation
    0.0
    """

    setting: Setting
    wrong_factor: float = 1.01  # what makes a prediction wrong on purpose; signs are flipped
    seed: int = 0  # what the check draws, it draws from here: `rng` and `seeds`
    measurements: list[Measurement] = field(default_factory=list)
    curve: Curve | None = None
    drew: bool = False  # whether anything was drawn
    on_measurement: Callable[[str], None] | None = None  # called with the label of each comparison, for progress

    def rng(self) -> np.random.Generator:
        """A generator of random numbers for this check."""
        self.drew = True
        return np.random.default_rng(self.seed)

    def seeds(self, count: int) -> range:
        """Seeds of `count` runs, others for each seed of the check."""
        self.drew = True
        return range(self.seed * count, (self.seed + 1) * count)

    def equal(
        self,
        label: str,
        predicted: ArrayLike,
        measured: ArrayLike,
        *,
        tolerance: float,
        role: Role = "assumed",
        floor: float = 1e-13,
        wrong_factor: float | None = None,
    ) -> None:
        """Predicted and measured agree to `tolerance`, relative to the largest measured entry.

        Differences up to `floor` count as rounding.
        """
        p, m = np.broadcast_arrays(np.asarray(predicted, np.float64), np.asarray(measured, np.float64))
        size = max(float(np.abs(m).max()), floor / tolerance)
        errors = [np.abs(factor * p - m) / size for factor in self._factors(wrong_factor)]
        self._add("equal", label, role, p, m, errors, tolerance)

    def at_most(
        self,
        label: str,
        measured: ArrayLike,
        bound: ArrayLike,
        *,
        role: Role = "assumed",
        wrong_factor: float | None = None,
    ) -> None:
        """No measured entry exceeds its bound, except by rounding."""
        m, b = np.broadcast_arrays(np.asarray(measured, np.float64), np.asarray(bound, np.float64))
        used = [_share_used(m, b / factor) for factor in self._factors(wrong_factor)]
        self._add("at most", label, role, b, m, used, 1 + 1e-9)

    def at_least(
        self,
        label: str,
        measured: ArrayLike,
        bound: ArrayLike,
        *,
        role: Role = "assumed",
        wrong_factor: float | None = None,
    ) -> None:
        """No measured entry falls short of its bound, except by rounding."""
        m, b = np.broadcast_arrays(np.asarray(measured, np.float64), np.asarray(bound, np.float64))
        used = [_share_used(factor * b, m) for factor in self._factors(wrong_factor)]
        self._add("at least", label, role, b, m, used, 1 + 1e-9)

    def positive(self, label: str, values: ArrayLike, *, role: Role = "assumed", allowed: float = 0.0) -> None:
        """All values are positive, except for a share of at most `allowed`.

        The measurement compares a share of one with the share of values that are positive.
        """
        v = np.asarray(values, np.float64)
        wrong = [np.asarray((~(sign * v > 0)).mean()) for sign in (1, -1)]  # NaN is not positive
        self._add("positive", label, role, np.asarray(1.0), 1.0 - wrong[0], wrong, allowed)

    def _factors(self, wrong_factor: float | None) -> tuple[float, float]:
        """One, and the factor that makes a prediction wrong on purpose: the row's own, or the claim's."""
        default = self.wrong_factor if self.wrong_factor > 0 else WRONG_FACTOR
        return 1.0, default if wrong_factor is None else wrong_factor

    def _add(
        self,
        kind: Comparison,
        label: str,
        role: Role,
        predicted: NDArray[np.float64],
        measured: NDArray[np.float64],
        deviations: list[NDArray[np.float64]],
        allowed: float,
    ) -> None:
        """Keep the entry that deviates most; `deviations` are those of the prediction and of the wrong one."""
        if role not in ROLES:
            raise unknown("role", role, ROLES)
        if not isinstance(label, str):
            raise InputError(f"a comparison has {short_repr(label)} in place of a label: give a string.")
        worst = np.unravel_index(int(np.argmax(deviations[0])), deviations[0].shape)
        deviation = float(deviations[0][worst])
        holds, holds_if_wrong = (bool(entries.max() <= allowed) for entries in deviations)  # NaN does not hold
        values = float(predicted[worst]), float(measured[worst]), deviation, float(allowed)
        self.measurements.append(Measurement(label, role, *values, holds, holds and not holds_if_wrong, kind))
        if self.on_measurement:
            self.on_measurement(label)


def _share_used(amount: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much of a bound is used up; of one that is not positive nothing, or infinitely much if it is exceeded."""
    share = np.where(amount <= bound, 0.0, np.inf)
    with np.errstate(over="ignore"):
        return np.divide(np.maximum(amount, 0.0), bound, out=share, where=bound > 0)
