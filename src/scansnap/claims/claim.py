"""A statement of the paper and how it is put to the test.

A check measures in one or more ways, each with a role:

- `assumed`     in a setting that meets what the statement assumes: this decides whether it holds;
- `beyond`      where an assumption is dropped (true SGD, finite T, eta_Y/eta_Z of one, momentum): this decides whether
                it holds under its assumptions only;
- `corrected`   the statement as it should read, where it fails as published;
- `contrast`    something to compare with, which decides nothing.

Every check can fail: `wrong_factor` is a factor (for signs, a flipped sign) by which a prediction that is wrong is
noticed, and the tests show it for each claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.base.errors import InputError
from scansnap.base.threads import one_thread
from scansnap.claims.symmetry import is_symmetric
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import single_common
from scansnap.theory import assumptions

ROLES = {
    "assumed": "under its assumptions",
    "beyond": "beyond them",
    "corrected": "as it should read",
    "contrast": "for comparison",
}
"""What each role is called in words."""

DEPENDS = {
    "the classes": "",
    "the classes and random matrices": "random matrices too",
    "K, M and the rates": "formula in K, M and the rates",
    "nothing": "formula: does not depend on the classes",
}
"""What a claim's check depends on, and how to tell someone who gave classes of their own."""

HOLDS, ASSUMED_ONLY, FAILS = "holds", "holds under its assumptions only", "fails"
UNMET, INAPPLICABLE = "assumptions not met", "does not apply"


@dataclass(frozen=True)
class Setting:
    """What a claim is checked on; time runs in steps of batch 1."""

    classes: SequenceClasses
    lr_y: float = 0.5
    lr_z: float = 0.0005

    @property
    def probs(self) -> NDArray[np.float64]:
        """P(l|n) over the contextual tokens alone (K x S): the columns that the engine keeps."""
        return self.classes.probs[:, self.classes.contextual_tokens]


def assumed_setting() -> Setting:
    """Three classes of one query with one common token and 1600 tokens, eta_Y/eta_Z = 1000: all assumptions are met.

    The overlap o = 0.158 has eigenvalues 2 o < 1/3 and |-o| >= 6/sqrt(1600).  For K symmetric classes the two sides of
    Assumption 2 leave room only if M > 36 K^2 (K-1)^2: 1,296 tokens for three classes, 291,600 for ten.
    """
    return Setting(single_common(num_classes=3, num_distinct=14, vocab_size=1600))


@dataclass(frozen=True)
class Measurement:
    """One comparison: at the point where they differ most, what was predicted and what was measured."""

    label: str
    role: str
    predicted: float
    measured: float
    deviation: float  # relative error; for bounds the share of the bound used up; for signs the share that is wrong
    allowed: float
    holds: bool
    kind: str  # of comparison, which says what the deviation is: equal, at most, at least, positive or within


@dataclass(frozen=True)
class Curve:
    """What a claim's picture shows."""

    x: NDArray[np.float64]
    lines: dict[str, NDArray[np.float64]]
    x_label: str
    y_label: str
    log_x: bool = True
    log_y: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)  # places on the x axis that have a name
    dots: tuple[str, ...] = ()  # lines whose points are not to be joined

    @classmethod
    def against(cls, measured: ArrayLike, predicted: Mapping[str, ArrayLike], quantity: str) -> Curve:
        """Predictions as dots over what was measured, entry by entry, with the line where they would be equal."""
        x = np.ravel(np.asarray(measured, np.float64))
        order = np.argsort(x)
        x = x[order]
        dots = {name: np.ravel(np.asarray(values, np.float64))[order] for name, values in predicted.items()}
        return cls(x, {**dots, "equal": x}, f"{quantity}, measured", f"{quantity}, predicted", log_x=False,
                   dots=tuple(dots))  # fmt: skip


@dataclass
class Check:
    """Passed to a claim's function, which measures through it."""

    setting: Setting
    wrong_factor: float | None = None  # set to make every prediction wrong on purpose
    measurements: list[Measurement] = field(default_factory=list)
    curve: Curve | None = None

    def equal(
        self,
        label: str,
        predicted: ArrayLike,
        measured: ArrayLike,
        *,
        tolerance: float,
        role: str = "assumed",
        floor: float = 1e-13,
    ) -> None:
        """Predicted and measured agree to `tolerance`, relative to the largest entry measured.

        Differences up to `floor` count as nothing: where both are rounding they are equal.
        """
        p, m = np.broadcast_arrays(np.asarray(predicted, np.float64), np.asarray(measured, np.float64))
        p = p * self._wrong
        size = max(float(np.abs(m).max()), floor / tolerance)
        apart = np.abs(p - m) / size
        worst = np.unravel_index(int(np.argmax(apart)), apart.shape)
        self._add("equal", label, role, p[worst], m[worst], apart[worst], tolerance)

    def at_most(self, label: str, measured: ArrayLike, bound: ArrayLike, *, role: str = "assumed") -> None:
        """No entry measured exceeds its bound, but for rounding."""
        m, b = np.broadcast_arrays(np.asarray(measured, np.float64), np.asarray(bound, np.float64))
        b = b / self._wrong
        used = np.where(m <= 0, 0.0, m / np.maximum(b, 1e-300))
        worst = np.unravel_index(int(np.argmax(used)), used.shape)
        self._add("at most", label, role, b[worst], m[worst], used[worst], 1 + 1e-9)

    def at_least(self, label: str, measured: ArrayLike, bound: ArrayLike, *, role: str = "assumed") -> None:
        """No entry measured falls short of its positive bound, but for rounding."""
        m, b = np.broadcast_arrays(np.asarray(measured, np.float64), np.asarray(bound, np.float64))
        b = b * self._wrong
        used = np.where(b <= 0, 0.0, b / np.maximum(m, 1e-300))
        worst = np.unravel_index(int(np.argmax(used)), used.shape)
        self._add("at least", label, role, b[worst], m[worst], used[worst], 1 + 1e-9)

    def positive(self, label: str, values: ArrayLike, *, role: str = "assumed", allowed: float = 0.0) -> None:
        """All values are positive, but for a share of `allowed`; shown are a share of one and the share found."""
        v = np.asarray(values, np.float64)
        if self.wrong_factor is not None:
            v = -v
        wrong = float((~(v > 0)).mean())  # NaN is not positive
        self._add("positive", label, role, 1.0, 1.0 - wrong, wrong, allowed)

    def within(self, label: str, apart: ArrayLike, radius: float, *, failure: float, role: str = "assumed") -> None:
        """All of `apart` but a share of `failure` are within the radius; shown are the two shares."""
        outside = float((~(np.asarray(apart) <= radius / self._wrong)).mean())
        self._add("within", label, role, failure, outside, outside / failure, 1.0)

    @property
    def _wrong(self) -> float:
        return 1.0 if self.wrong_factor is None else self.wrong_factor

    def _add(
        self, kind: str, label: str, role: str, predicted: float, measured: float, deviation: float, allowed: float
    ) -> None:
        holds = bool(deviation <= allowed)  # NaN does not hold
        self.measurements.append(
            Measurement(label, role, float(predicted), float(measured), float(deviation), float(allowed), holds, kind)
        )


NEEDS: dict[str, tuple[str, Callable[[SequenceClasses], bool]]] = {
    "several classes": ("at least two classes", lambda c: c.num_classes > 1),
    "a distinct token": ("a token that only one class has", lambda c: "distinct" in c.token_kinds),
    "distinct tokens": (
        "at least two distinct tokens in the first class",
        lambda c: len(c.distinct_tokens(0)) > 1,
    ),
    "distinct tokens everywhere": (
        "at least two distinct tokens in every class",
        lambda c: min(len(c.distinct_tokens(i)) for i in range(c.num_classes)) > 1,
    ),
    "common tokens": ("tokens that classes share", lambda c: len(c.common_tokens) > 0),
    "one common token": ("exactly one common token", lambda c: len(c.common_tokens) == 1),
    "one query": ("one query for all classes", lambda c: len(c.queries) == 1),
    "symmetric classes": (
        "equally likely classes with matching distinct tokens, common tokens shared by all with equal probabilities, "
        "and as many classes for each query",
        is_symmetric,
    ),
}
"""What a claim may need of classes to say anything about them: in words, and as a test."""


@dataclass(frozen=True)
class Claim:
    """A statement, its conditions and its check."""

    id: str
    statement: str
    where: str  # in the paper
    conditions: str
    check: Callable[[Check], None]
    setting: Callable[[], Setting]
    wrong_factor: float
    correction: str  # how it should read, where it fails as published
    needs: tuple[str, ...]  # names in NEEDS
    assumes: tuple[str, ...]  # ids of `theory.assumptions` without which the claim promises nothing
    depends_on: str  # a key of DEPENDS

    @property
    def how(self) -> str:
        """How it is checked, in a sentence."""
        return " ".join((self.check.__doc__ or "").split())

    @property
    def note(self) -> str:
        """What to tell someone who gave classes of their own, if the claim is not, or not only, about them."""
        return DEPENDS[self.depends_on]

    def run(self, setting: Setting | None = None, *, wrong: bool = False) -> Verdict:
        """Check the claim, in its own setting unless another is given; with `wrong` its predictions are falsified."""
        chosen = setting or self.setting()
        for words, met in (NEEDS[name] for name in self.needs):
            if not met(chosen.classes):
                raise InputError(f"{self.id} says nothing about these classes: it needs {words}.")
        check = Check(chosen, self.wrong_factor if wrong else None)
        with one_thread():
            self.check(check)
        return Verdict(self, chosen, tuple(check.measurements), check.curve)


@dataclass(frozen=True)
class Verdict:
    """A claim with what was measured."""

    claim: Claim
    setting: Setting
    measurements: tuple[Measurement, ...]
    curve: Curve | None
    seconds: float = 0.0
    reason: str = ""  # why the claim does not apply to the classes given

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def verdict(self) -> str:
        """Holds, holds under its assumptions only, or fails.

        On classes and rates of your own also: that the claim does not apply to them, or, where it is not borne out and
        they break one of its assumptions, that it promised nothing.
        """
        if self.reason:
            return INAPPLICABLE
        if not all(one.holds for one in self.measurements if one.role == "assumed"):
            return UNMET if self.unmet else FAILS
        return HOLDS if all(one.holds for one in self.measurements if one.role == "beyond") else ASSUMED_ONLY

    @property
    def leading(self) -> Measurement | None:
        """The measurement to show in one line: the first that decided; none where the claim does not apply."""
        if self.reason:
            return None
        role = "beyond" if self.verdict == ASSUMED_ONLY else "assumed"
        mine = [one for one in self.measurements if one.role == role]
        broken = [one for one in mine if not one.holds]
        return (broken or mine)[0]

    @property
    def unmet(self) -> tuple[str, ...]:
        """The claim's assumptions that the setting breaks."""
        found = assumptions(self.setting.classes, lr_y=self.setting.lr_y, lr_z=self.setting.lr_z)
        return tuple(one.id for one in found.broken if one.id in self.claim.assumes)

    def timed(self, seconds: float) -> Verdict:
        return replace(self, seconds=seconds)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        leading = self.leading
        return {
            "id": self.id,
            "statement": self.claim.statement,
            "where": self.claim.where,
            "conditions": self.claim.conditions,
            "predicted": _finite(leading.predicted) if leading else None,
            "measured": _finite(leading.measured) if leading else None,
            "deviation": _finite(leading.deviation) if leading else None,
            "verdict": self.verdict,
            "correction": self.claim.correction or None,
            "depends_on": self.claim.depends_on,
            "reason": self.reason or None,
            "measurements": [{k: _finite(v) for k, v in vars(one).items()} for one in self.measurements],
            "unmet_assumptions": list(self.unmet),
            "setting": {
                "classes": repr(self.setting.classes),
                "lr_y": self.setting.lr_y,
                "lr_z": self.setting.lr_z,
            },
            "seconds": round(self.seconds, 3),
        }


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


CLAIMS: dict[str, Claim] = {}
"""All claims by id, in the order in which their modules list them."""


def claim(
    statement: str,
    *,
    where: str,
    conditions: str = "none",
    setting: Callable[[], Setting] = assumed_setting,
    wrong_factor: float = 1.01,
    correction: str = "",
    needs: tuple[str, ...] = (),
    assumes: tuple[str, ...] = (),
    depends_on: str = "the classes",
) -> Callable[[Callable[[Check], None]], Claim]:
    """Make a claim of a check function, under the function's name."""

    def made(check: Callable[[Check], None]) -> Claim:
        found = Claim(
            check.__name__, statement, where, conditions, check, setting, wrong_factor, correction, needs, assumes,
            depends_on,
        )  # fmt: skip
        CLAIMS[found.id] = found
        return found

    return made
