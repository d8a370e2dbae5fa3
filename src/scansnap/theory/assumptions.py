"""Which of the paper's assumptions a setting meets, with the numbers (Assumptions 1 and 2, Theorem 1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.formulas import readable
from scansnap.theory.overlap import eigenvalues
from scansnap.theory.sampling import frequency_radius
from scansnap.validation.argument_types import Length
from scansnap.validation.checks import numbers
from scansnap.validation.validate import formula

MUCH = 10.0
"""How many times larger counts as "much larger", where the paper writes >>."""

AssumptionId = Literal[
    "long_sequences",
    "fast_decoder",
    "weak_overlap",
    "no_vanishing_overlap",
    "independent_classes",
    "query_of_next",
    "large_vocabulary",
    "many_tokens",
    "decoder_rate",
    "uniform_classes",
    "enough_steps",
    "plain_sgd",
    "zero_start",
]


@runtime_checkable
class Classes(Protocol):
    """The part of `scansnap.SequenceClasses` that is used here."""

    @property
    def offsets(self) -> NDArray[np.int64]: ...
    @property
    def tokens(self) -> NDArray[np.int64]: ...
    @property
    def token_probs(self) -> NDArray[np.float64]: ...
    @property
    def query(self) -> NDArray[np.int64]: ...
    @property
    def next_token(self) -> NDArray[np.int64]: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
    @property
    def vocab_size(self) -> int: ...


@dataclass(frozen=True)
class Assumption:
    """One assumption, with whether one setting meets it.

    >>> first, *_ = theory.assumptions(ss.syn_small(), lr_y=1.0, lr_z=1.0)
    >>> print(first.id, first.met)
    long_sequences True
    """

    id: AssumptionId
    statement: str
    value: float
    limit: float
    met: bool
    advice: str  # what it means here, and what would meet it


@dataclass(frozen=True)
class Assumptions:
    """All assumptions; falsy if one is not met.

    >>> checked = theory.assumptions(ss.syn_small(), lr_y=1.0, lr_z=1.0)
    >>> print(len(checked.broken))
    6
    """

    all: tuple[Assumption, ...]

    def __iter__(self) -> Iterator[Assumption]:
        return iter(self.all)

    def __getitem__(self, name: AssumptionId) -> Assumption:
        return next(assumption for assumption in self.all if assumption.id == name)

    def __bool__(self) -> bool:
        return not self.broken

    @property
    def broken(self) -> tuple[Assumption, ...]:
        return tuple(assumption for assumption in self.all if not assumption.met)

    def __str__(self) -> str:
        lines = (f"{'met ' if each.met else 'NOT '} {each.statement}: {each.advice}" for each in self.all)
        return readable("\n".join(lines))


@formula
def assumptions(
    classes: Classes,
    *,
    lr_y: float,
    lr_z: float,
    seq_len: Length = math.inf,
    steps: float | None = None,
    momentum: float | None = 0.0,
    optimizer: str = "sgd",
    init: str = "zeros",
) -> Assumptions:
    """Which of the paper's assumptions classes and rates meet at the start of training, Z = 0.

    ">>" is read as ten times; every entry has the number, so that readers can draw the line elsewhere.

    >>> checked = theory.assumptions(ss.syn_small(), lr_y=1.0, lr_z=1.0, seq_len=128)
    >>> print(bool(checked), len(checked.broken))
    False 7
    """
    y, z = float(numbers("lr_y", lr_y, above=0)), float(numbers("lr_z", lr_z, least=0))
    entries = [_long(classes, float(seq_len)), _fast(y, z), *_overlaps(classes), *_sizes(classes, y)]
    queries = int(np.unique(classes.next_token, return_counts=True)[1].max())
    several = f"a next token follows {queries} queries; formulas that index classes by n are not about these classes"
    unlike = "" if queries == 1 else f"{several}, the dynamics are"
    statement = "the next token determines the query, m = psi(n)"
    entries.append(Assumption("query_of_next", statement, queries, 1.0, queries == 1, unlike or MET_ADVICE))
    uneven = float(classes.weights.max() / classes.weights.min())
    often = f"the most frequent class is drawn {uneven:.3g} times as often as the rarest"
    is_even = uneven < 1 + 1e-9
    entries.append(Assumption("uniform_classes", "classes are drawn uniformly", uneven, 1.0, is_even, often))
    if steps is not None:
        square = len(classes.query) ** 2
        early = f"{steps:g} steps against K^2 = {square}; early draws of classes are uneven"
        entries.append(_at_least("enough_steps", "t >> K^2", float(steps), MUCH * square, early))
    rule = "" if optimizer == "sgd" and not momentum else f"{optimizer} with momentum {momentum or 0:g} is not covered"
    larger = "momentum μ acts like rates larger by 1/(1 - μ) once it has built up"
    advice = f"{rule}; {larger}" if rule else MET_ADVICE
    entries.append(Assumption("plain_sgd", "plain SGD", float(momentum or 0), 0.0, not rule, advice))
    lead = MET_ADVICE if init == "zeros" else "a random start gives some tokens a lead (Theorem 3: r(0))"
    entries.append(Assumption("zero_start", "Y(0) = 0 and Z(0) = 0", 0.0, 0.0, init == "zeros", lead))
    return Assumptions(tuple(entries))


MET_ADVICE = "as assumed"


def _at_least(name: AssumptionId, statement: str, value: float, limit: float, advice: str) -> Assumption:
    """An assumption that is met from a limit on."""
    return Assumption(name, statement, value, limit, value >= limit, advice)


def _long(classes: Classes, seq_len: float) -> Assumption:
    typical = float(np.median(classes.token_probs))
    if math.isinf(seq_len):
        return Assumption("long_sequences", "T -> infinity (1b)", seq_len, math.inf, True, MET_ADVICE)
    radius = float(frequency_radius(seq_len, failure=0.05))
    needed = math.ceil(1 + math.log(2 / 0.05) / (2 * (typical / MUCH) ** 2))
    advice = (
        f"with T = {seq_len:g} a token's frequency is within {radius:.2g} of its probability (typically {typical:.2g}) "
        f"in 95% of sequences; within a tenth of it needs T = {needed:,}"
    )
    return _at_least("long_sequences", "T -> infinity (1b)", seq_len, needed, advice)


def _fast(lr_y: float, lr_z: float) -> Assumption:
    ratio = lr_y / lr_z if lr_z else math.inf
    advice = (
        f"eta_Y/eta_Z = {ratio:.6g}, and at least {MUCH:g} is taken for much larger; what holds to leading order in "
        "eta_Z/eta_Y holds up to a time that grows with the ratio (first_fall)"
    )
    return _at_least("fast_decoder", "eta_Y >> eta_Z (1c)", ratio, MUCH, advice)


def _overlaps(classes: Classes) -> list[Assumption]:
    from scipy.sparse import csr_array  # takes long to import

    count, size = len(classes.query), classes.vocab_size
    probs = csr_array((classes.token_probs, classes.tokens, classes.offsets), shape=(count, size))
    norms = np.sqrt(np.asarray(probs.multiply(probs).sum(axis=1)).ravel())
    e = (probs @ probs.T).toarray() / np.outer(norms, norms)
    np.fill_diagonal(e, 0.0)
    spectrum = np.abs(eigenvalues(e))
    top, low, most, floor = float(spectrum[0]), float(spectrum[-1]), 1 / count, 6 / math.sqrt(size)
    rank = float(np.linalg.eigvalsh(e + np.eye(count))[0])
    weak = f"|lambda_1| = {top:.3g} against 1/K = {most:.3g}"
    if top >= most:
        weak += f"; {top * count:.1f} times too much: make common tokens fewer or rarer"
    vanishing = f"min |lambda_i| = {low:.3g} against 6/sqrt(M) = {floor:.3g}"
    if low < floor:
        enough = f"M of at least {math.ceil((6 / low) ** 2):,}" if low > 1e-12 else "overlapping classes"
        vanishing += f"; it would take {enough}"
    smallest = f"the smallest eigenvalue of F^T F is {rank:.3g}"
    return [
        Assumption("weak_overlap", "|lambda_1| < 1/K (2)", top, most, top < most, weak),
        _at_least("no_vanishing_overlap", "|lambda_i| >= 6/sqrt(M) (2)", low, floor, vanishing),
        Assumption("independent_classes", "the f_n are linearly independent (2)", rank, 0.0, rank > 1e-9, smallest),
    ]


def _sizes(classes: Classes, lr_y: float) -> list[Assumption]:
    count, size = len(classes.query), classes.vocab_size
    least = MUCH * size**-0.99
    span = f"the range for M = {size} is {least:.2g} to 1" if least < 1 else f"no rate meets it for M = {size}"
    rate, in_range = f"eta_Y = {lr_y:g}; {span}", least <= lr_y < 1
    square = f"M = {size} against K^2 = {count**2}"
    return [
        _at_least("large_vocabulary", "M >> K^2 (2)", size, MUCH * count**2, square),
        _at_least("many_tokens", "M >> 100 (Theorem 1)", size, MUCH * 100, f"M = {size}"),
        Assumption("decoder_rate", "M^-0.99 << eta_Y < 1 (Theorem 1)", lr_y, 1.0, in_range, rate),
    ]
