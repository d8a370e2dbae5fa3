"""Put claims to the test."""

from __future__ import annotations

import time
from collections.abc import Callable

from scansnap.base.errors import InputError, unknown
from scansnap.base.progress import progress_bar
from scansnap.claims import (  # noqa: F401  (each module registers its claims, in the paper's order)
    attention,
    beyond,
    decoder,
    distinct,
    gradients,
    growth,
    overlaps,
    phases,
    positional_prior,
    readings,
    residual,
    sampling,
)
from scansnap.claims.claim import CLAIMS, Claim, Setting, Verdict
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.options import check_classes
from scansnap.theory.checks import numbers

_KINDS = ("lemma", "theorem", "corollary", "remark", "assumption", "equation", "definition", "figure", "table")


def claims() -> list[Claim]:
    """All claims: the paper's numbered statements, kind by kind, then the others as their modules list them."""

    def place(one: Claim) -> tuple[int, int]:
        kind, _, number = one.id.partition("_")
        return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), int(number) if number.isdigit() else 0)

    return sorted(CLAIMS.values(), key=place)


def verify(
    *ids: str,
    classes: SequenceClasses | None = None,
    lr_y: float | None = None,
    lr_z: float | None = None,
    progress: bool | None = None,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Check the claims named, or all; on your own classes and rates where they are given.

    A claim that says nothing about the classes given gets the verdict "does not apply"; asked for by itself, it raises
    an `InputError`.  `on_verdict` is called with each verdict as it is reached.
    """
    for name in ids:
        if name not in CLAIMS:
            raise unknown("claim", name, [one.id for one in claims()])
    if classes is not None:
        check_classes(classes)
    check_rates(lr_y, lr_z)
    chosen = [CLAIMS[name] for name in ids] if ids else claims()
    found = []
    with progress_bar(f"checking {len(chosen)} claim{'s' * (len(chosen) > 1)}", len(chosen), progress) as show:
        for i, one in enumerate(chosen):
            began = time.perf_counter()
            setting = _setting(one, classes, lr_y, lr_z)
            try:
                verdict = one.run(setting)
            except InputError as error:
                if len(chosen) == 1:
                    raise
                verdict = Verdict(one, setting, (), None, reason=str(error))
            verdict = verdict.timed(time.perf_counter() - began)
            found.append(verdict)
            show(i + 1)
            if on_verdict:
                on_verdict(verdict)
    return found


def check_rates(lr_y: float | None, lr_z: float | None) -> None:
    """Refuse rates that are no positive numbers; None leaves a claim its own."""
    for name, value in (("lr_y", lr_y), ("lr_z", lr_z)):
        if value is not None:
            numbers(name, value, above=0)


def _setting(claim: Claim, classes: SequenceClasses | None, lr_y: float | None, lr_z: float | None) -> Setting:
    """The claim's own setting with what was given put in its place."""
    own = claim.setting()
    return Setting(
        classes=own.classes if classes is None else classes,
        lr_y=own.lr_y if lr_y is None else float(lr_y),
        lr_z=own.lr_z if lr_z is None else float(lr_z),
    )
