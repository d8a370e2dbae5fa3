"""A claim: a statement, and a check that compares it with exact dynamics.

    @claim(where="my notes", wrong_factor=-1.0)
    def falling_loss(check: Check) -> None:
        '''The loss falls at every step.

        Conditions: rates of at most 1

        Check: Ten expected updates.
        '''
        classes, lr_y, lr_z = check.setting.classes, check.setting.lr_y, check.setting.lr_z
        loss = train(classes, lr_y=lr_y, lr_z=lr_z, steps=10, batch_size=None)["loss"].values[0]
        check.positive("decrease of the loss", -np.diff(loss))

The docstring states the claim (`docstring.py`).  The paper's claims are made in the same way.  Every check can fail:
each measurement that decides notices a prediction that is wrong by `wrong_factor` (for signs, by a flipped sign).  The
tests show this for each row of the paper's claims.
"""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, ParamSpec, TypeVar, get_args

import numpy as np

from scansnap.claims.check import (
    ROLES,
    Check,
    Curve,
    Measurement,
    Role,
    Setting,
    assumed_setting,
    classes_in_words,
)
from scansnap.claims.docstring import read_docstring
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.runtime.errors import InputError, number_text, unknown
from scansnap.runtime.formulas import readable
from scansnap.runtime.machine import one_thread
from scansnap.theory import Assumption, assumptions, symmetry
from scansnap.theory.assumptions import AssumptionId
from scansnap.validation.argument_types import ArgumentType, SequenceType
from scansnap.validation.user_code import is_own
from scansnap.validation.validate import validated

P = ParamSpec("P")
T = TypeVar("T")

NAMES = SequenceType(ArgumentType())
VerdictWord = Literal["holds", "holds under its assumptions only", "fails", "assumptions not met", "does not apply"]

DEPENDS = {
    "the classes": "",
    "the classes and random matrices": "random matrices too",
    "K, M and the rates": "formula in K, M and the rates",
    "nothing": "formula: does not depend on the classes",
}
"""What a claim's check depends on, with a note for users who check it on their own classes."""

CATEGORIES = {
    "misprint": "a sign, a factor or a symbol is wrong in the text",
    "error": "the statement is false as printed",
    "too strong": "true under more assumptions than stated",
    "sharpened": "true, and there is a better form",
    "added": "not said by the paper",
    "holds": "true as stated",
    "holds under its assumptions": "true where its assumptions are met, and not far beyond",
    "fails under true SGD": "true for the modified decoder gradient, or said of true SGD and not true of it",
}
"""The kinds of claims, by what became of the paper's words: each with its meaning."""

NAME_WIDTH = 19
"""Characters of a claim's name in a row of a table: those of the paper fit."""

LEADING_FIELDS = ("predicted", "measured", "deviation", "deviation_is")
"""What a verdict's JSON has of its leading measurement."""

HOLDS: Final = "holds"
ASSUMED_ONLY: Final = "holds under its assumptions only"
FAILS: Final = "fails"
UNMET: Final = "assumptions not met"
INAPPLICABLE: Final = "does not apply"


MARKS: dict[VerdictWord, str] = {HOLDS: "✓", ASSUMED_ONLY: "◐", FAILS: "✗", UNMET: "?", INAPPLICABLE: " "}
"""The sign of each verdict."""


def is_symmetric(classes: SequenceClasses) -> bool:
    """Whether classes are interchangeable: (2) and (3) of Corollary 2, equally likely, evenly spread over queries."""
    shape = symmetry(classes.probs[:, classes.contextual_tokens], query=classes.query)
    per_query = np.unique(classes.query, return_counts=True)[1]
    even = bool(np.ptp(classes.weights) < 1e-12 and np.ptp(per_query) == 0)
    return shape.matching_distinct and shape.shared_common and even


ASSUMED_THROUGHOUT: tuple[AssumptionId, ...] = ("query_of_next",)
"""What all of the paper assumes (Section 3.2)."""

NEEDS: dict[str, tuple[str, Callable[[SequenceClasses], bool]]] = {
    "several classes": ("at least two classes", lambda c: c.num_classes > 1),
    "a distinct token": ("a token that only one class has", lambda c: "distinct" in c.kinds_of(c.contextual_tokens)),
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
    "positions": ("tokens that depend on their position", lambda c: c.num_buckets > 0),
    "no positions": ("tokens that do not depend on their position", lambda c: not c.num_buckets),
    "one query": ("one query for all classes", lambda c: len(c.queries) == 1),
    "interacting queries": (
        "two queries, one of them with two classes",
        lambda c: len(c.queries) > 1 and max(len(c.of_query(int(query))) for query in c.queries) > 1,
    ),
    "symmetric classes": (
        "equally likely classes with matching distinct tokens, common tokens shared by all with equal probabilities, "
        "and as many classes for each query",
        is_symmetric,
    ),
}
"""What a claim may need of classes to say anything about them: in words, and as a test."""


@dataclass(frozen=True)
class Claim:
    """A statement, its conditions and its check; made by the decorator `claim`, which explains the fields.

    >>> @ss.claim(where="my notes")
    ... def one_is_positive(check: ss.Check) -> None:
    ...     "One is positive."
    ...     check.positive("one", [1.0])
    >>> one_is_positive.id, one_is_positive.statement
    ('one_is_positive', 'One is positive.')
    """

    id: str
    statement: str
    where: str
    conditions: str
    check: Callable[[Check], None]
    setting: Callable[[], Setting]
    wrong_factor: float
    correction: str
    how: str  # how it is checked
    needs: tuple[str, ...]
    assumes: tuple[AssumptionId, ...]
    depends_on: str
    category: str

    def __post_init__(self) -> None:
        if not self.id.isidentifier():
            raise InputError(f"a claim is called '{self.id}': define its check with def, under the name of the claim.")
        for kind, names, allowed in (
            ("need", self.needs, tuple(NEEDS)),
            ("assumption", self.assumes, get_args(AssumptionId)),
            ("depends_on", (self.depends_on,), tuple(DEPENDS)),
            ("category", (self.category,), tuple(CATEGORIES)),
        ):
            for name in names:
                if name not in allowed:
                    raise unknown(kind, name, allowed)

    @property
    def note(self) -> str:
        """What to tell users who check the claim on their own classes, if it is not, or not only, about them."""
        return DEPENDS[self.depends_on]

    def row(self, width: int = NAME_WIDTH) -> str:
        """One line of a list: the id in `width` characters, the place, and the statement."""
        return f"{self.id:{width}} {self.where}: {readable(self.statement)}"

    def as_dict(self) -> dict[str, str]:
        """Id, statement and place, for JSON; a verdict adds what was found."""
        return {"id": self.id, "statement": readable(self.statement), "where": self.where}

    def run(
        self, setting: Setting | None = None, *, seed: int = 0, on_measurement: Callable[[str], None] | None = None
    ) -> Verdict:
        """Check the claim in a setting, by default its own; another `seed` draws other numbers, if it draws any.

        `on_measurement` is called with the label of each comparison.
        """
        setting = setting or self.setting()
        for words, met in (NEEDS[name] for name in self.needs):
            if not met(setting.classes):
                raise InputError(f"{self.id} says nothing about these classes: it needs {words}.")
        check = Check(setting, self.wrong_factor, seed, on_measurement=on_measurement)
        with one_thread():
            self.check(check)
        if not isinstance(check.curve, Curve | None):
            raise TypeError(f"check.curve is of type {type(check.curve).__name__}: give a Curve")
        if not any(measurement.role == "assumed" for measurement in check.measurements):
            raise InputError(
                f"{self.id} compares nothing under its assumptions: its check must call check.equal, or another "
                "comparison, in the role 'assumed'."
            )
        return Verdict(self, setting, tuple(check.measurements), check.curve, drew=check.drew)


@dataclass(frozen=True)
class Verdict:
    """A claim with the measurements of its check.

    >>> (verdict,) = ss.verify("lemma_6")
    >>> verdict.verdict, len(verdict.measurements) > 0
    ('holds', True)
    """

    claim: Claim
    setting: Setting
    measurements: tuple[Measurement, ...]
    curve: Curve | None
    seconds: float = 0.0
    reason: str = ""  # why the claim does not apply to the classes
    drew: bool = False  # whether the check drew random numbers

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def verdict(self) -> VerdictWord:
        """Whether the claim holds, holds under its assumptions only, or fails.

        On a user's classes and rates there are two more: the claim does not apply to them, or it is not borne out but
        promised nothing, because they break one of its assumptions.
        """
        if self.reason:
            return INAPPLICABLE
        if not self._all_hold("assumed"):
            return UNMET if self.unmet else FAILS
        return HOLDS if self._all_hold("beyond") else ASSUMED_ONLY

    def _all_hold(self, role: Role) -> bool:
        return all(measurement.holds for measurement in self.measurements if measurement.role == role)

    @property
    def leading(self) -> Measurement | None:
        """The measurement to show in one line: the first that decided; None where the claim does not apply."""
        if self.reason:
            return None
        role = "beyond" if self.verdict == ASSUMED_ONLY else "assumed"
        deciding = [measurement for measurement in self.measurements if measurement.role == role]
        return next((measurement for measurement in deciding if not measurement.holds), deciding[0])

    @property
    def unmet(self) -> tuple[AssumptionId, ...]:
        """The claim's assumptions that the setting breaks."""
        assumes = (*self.claim.assumes, *ASSUMED_THROUGHOUT)
        return tuple(broken.id for broken in self.broken_assumptions if broken.id in assumes)

    @property
    def broken_assumptions(self) -> tuple[Assumption, ...]:
        """All of the paper's assumptions that the setting breaks."""
        return assumptions(self.setting.classes, lr_y=self.setting.lr_y, lr_z=self.setting.lr_z).broken

    def notices_wrong_factor(self) -> bool:
        """Whether each measurement that decides and holds would not hold with a prediction wrong by `wrong_factor`."""
        held = [entry for entry in self.measurements if entry.holds and entry.role in ("assumed", "corrected")]
        return bool(held) and all(entry.notices for entry in held)

    def row(self, width: int = NAME_WIDTH) -> str:
        """One line of a table, under `table_heading(width)`; it notes if the claim is not about the user's setting."""
        leading = self.leading
        numbers = [number_text(number, ".4g") for number in (leading.predicted, leading.measured)] if leading else []
        note = f"({self.claim.note}) " if self.claim.note and self._is_of_user else ""
        statement = self.reason or note + readable(self.claim.statement)
        return (
            f"{MARKS[self.verdict]} {self.id:{width}} {self.verdict:33} {self.claim.category:28} "
            f"{' '.join(f'{number:>11}' for number in numbers):23}  "
            f"{textwrap.shorten(statement, 78, placeholder=' …')}"
        )

    @property
    def _is_of_user(self) -> bool:
        """Whether the classes or the rates are a user's."""
        return self.setting != self.claim.setting()

    def __str__(self) -> str:
        """The verdict in full.

        For a user's own claim it says whether the check can fail, as tests do for the others.
        """
        lines = [f"{MARKS[self.verdict]} {self.id} ({self.claim.where}): {self.verdict}", *self._claim_lines()]
        if self.reason:
            return "\n".join([*lines, f"  {self.reason}"])
        lines += self._measurement_lines()
        if self._is_of_user:
            lines.append(f"  on your classes and rates, whatever its category, it is: {self.verdict}")
        if self.verdict == UNMET:
            lines.append(f"  the claim promises nothing here: {', '.join(self.unmet)}")
        if self.claim.depends_on != "nothing":
            lines += self._assumption_lines()
        factor = self.claim.wrong_factor
        error = "a flipped sign" if factor < 0 else f"a wrong factor of {factor:.10g}"
        is_noticed = not is_own(self.claim.check) or self.notices_wrong_factor()
        return "\n".join([*lines, f"  {error} in the prediction would {'' if is_noticed else 'NOT '}be noticed"])

    def _claim_lines(self) -> list[str]:
        """What is claimed, where it was checked, and how."""
        claim, setting = self.claim, self.setting
        lines = [
            f"  {readable(claim.statement)}",
            f"  category:   {claim.category} ({CATEGORIES[claim.category]}), in its own setting",
            f"  conditions: {readable(claim.conditions)}",
        ]
        if claim.depends_on != "nothing":
            classes = f"; {classes_in_words(setting.classes)}" if claim.depends_on.startswith("the classes") else ""
            lines.append(f"  checked on: {setting.classes!r}, lr_y {setting.lr_y:g}, lr_z {setting.lr_z:g}{classes}")
        if claim.how:
            lines.append(f"  how:        {readable(claim.how)}")
        if claim.note and claim.depends_on != "nothing":
            lines.append(f"  depends on: {claim.depends_on}")
        if claim.correction:
            lines.append(f"  correction: {readable(claim.correction)}")
        return lines

    def _measurement_lines(self) -> Iterator[str]:
        """Each comparison, by its role."""
        for role, words in ROLES.items():
            in_role = [measurement for measurement in self.measurements if measurement.role == role]
            if in_role:
                yield f"  {words}:"
            for measurement in in_role:
                yield (
                    f"    {'ok ' if measurement.holds else 'NOT'} {readable(measurement.label)}: "
                    f"predicted {measurement.predicted_text}, measured {measurement.measured_text}, "
                    f"{measurement.deviation_is} {number_text(measurement.deviation, '.2g')} "
                    f"(allowed {measurement.allowed:.2g})"
                )

    def _assumption_lines(self) -> list[str]:
        """The paper's assumptions that the setting breaks, if any."""
        broken = self.broken_assumptions
        if not broken:
            ratio = self.setting.lr_y / self.setting.lr_z
            return [f"  the paper's assumptions: all met (ten times is taken for much larger; η_Y/η_Z = {ratio:.6g})"]
        return [
            "  the paper's assumptions: not met are",
            *(readable(f"    {assumption.statement}: {assumption.advice}") for assumption in broken),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        leading = self.leading
        return {
            **self.claim.as_dict(),
            "conditions": readable(self.claim.conditions),
            **{name: _finite(getattr(leading, name, None)) for name in LEADING_FIELDS},
            "verdict": self.verdict,
            "category": self.claim.category,
            "correction": readable(self.claim.correction) or None,
            "depends_on": self.claim.depends_on,
            "reason": self.reason or None,
            "measurements": [
                {name: _finite(value) for name, value in vars(measurement).items()}
                | {"deviation_is": measurement.deviation_is}
                for measurement in self.measurements
            ],
            "unmet_assumptions": list(self.unmet),
            "setting": {
                "classes": repr(self.setting.classes),
                "lr_y": self.setting.lr_y,
                "lr_z": self.setting.lr_z,
            },
            "seconds": round(self.seconds, 3),
        }


def table_heading(width: int = NAME_WIDTH) -> str:
    """The heading over rows of verdicts."""
    return f"  {'claim':{width}} {'verdict':33} {'category':28} {'predicted':>11} {'measured':>11}  statement"


def count_categories(verdicts: Iterable[Verdict]) -> str:
    """The number of claims in each category, in words."""
    categories = [verdict.claim.category for verdict in verdicts]
    return "; ".join(f"{categories.count(name)} {name}" for name in CATEGORIES if name in categories)


def _finite(value: object) -> object:
    """The value, or None for infinity and NaN, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_texts(make: Callable[P, T]) -> Callable[P, T]:
    """Refuse texts as arguments, which is how claims were made before their docstrings stated them."""

    @functools.wraps(make)
    def refuse_texts(*texts: P.args, **options: P.kwargs) -> T:
        if texts or {"conditions", "correction"} & options.keys():
            raise InputError(
                "a claim is its docstring: write @claim(where=...), the statement as the docstring's first paragraph, "
                "and how it is checked, conditions and correction in paragraphs 'Check:', 'Conditions:', 'Correction:'."
            )
        return make(*texts, **options)

    return refuse_texts


@_refuse_texts
@validated
def claim(
    *,
    where: str,
    category: str = "added",
    statement: str | None = None,
    setting: Callable[[], Setting] = assumed_setting,
    wrong_factor: float = 1.01,
    needs: Annotated[tuple[str, ...], NAMES] = (),
    assumes: Annotated[tuple[AssumptionId, ...], NAMES] = (),
    depends_on: str = "the classes",
) -> Callable[[Callable[[Check], None]], Claim]:
    """Turn a check function into a claim.  Its name is the claim's id, and its docstring states the claim.

    The docstring's first paragraph is the statement.  Paragraphs that begin with `Conditions:` (what it assumes),
    `Correction:` (how it should read, where it fails as stated) and `Check:` (how it is checked) may follow; all others
    are free, for the derivation.  Mathematics is written as eta_Y >> eta_Z, or in LaTeX between dollar signs, which
    pages typeset; backslashes need a raw docstring.

    The function compares predictions with measurements through the `Check` that it is called with, and may set the
    check's `curve` for the picture.  Where the claim says nothing about the classes it raises an `InputError`.

    Parameters
    ----------
    where : str
        Where it is stated.
    category : str
        How the paper's statement fares: "misprint", "error", "too strong", "sharpened", "holds", "holds under its
        assumptions" or "fails under true SGD"; "added" for a statement of your own.
    statement : str
        The statement, if it is computed and the docstring cannot have it.
    setting : callable
        Makes the setting in which it is checked; by default one that meets all of the paper's assumptions.
    wrong_factor : float
        An error in the predictions, as a factor, that the check must notice; negative for claims about signs.
    needs : tuple of str
        What classes must have for it to say anything about them: names in `NEEDS`.
    assumes : tuple of str
        The assumptions, as ids of `theory.assumptions`, without which it promises nothing.
    depends_on : str
        What its check depends on: "the classes", "the classes and random matrices", "K, M and the rates" or "nothing".

    Examples
    --------
    >>> @ss.claim(where="my notes")
    ... def one_is_positive(check: ss.Check) -> None:
    ...     "One is positive."
    ...     check.positive("one", [1.0])
    >>> ss.verify(claims=[one_is_positive])[0].verdict
    'holds'
    """

    def make(check: Callable[[Check], None]) -> Claim:
        name = getattr(check, "__name__", "")
        texts = read_docstring(name, check.__doc__, statement=statement)
        return Claim(
            id=name,
            statement=texts["Statement"],
            where=where,
            conditions=texts["Conditions"] or "none",
            check=check,
            setting=setting,
            wrong_factor=wrong_factor,
            correction=texts["Correction"],
            how=texts["Check"],
            needs=needs,
            assumes=assumes,
            depends_on=depends_on,
            category=category,
        )

    return make
