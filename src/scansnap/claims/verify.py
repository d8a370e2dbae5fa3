"""Check claims: the paper's, those of other papers, and those of a user's file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from scansnap.claims.catalog import by_id, claims_about, claims_of, installed_claims, own_claims, paper_claims
from scansnap.claims.check import check_rates
from scansnap.claims.claim import Claim, Verdict
from scansnap.claims.coverage import claims_at
from scansnap.data.named_classes import Data, as_source
from scansnap.runtime.errors import InputError, ScanSnapError, unknown
from scansnap.runtime.formulas import readable
from scansnap.runtime.progress import progress_bar
from scansnap.systems.catalog import SYSTEMS
from scansnap.systems.system import System
from scansnap.validation.argument_types import SequenceType
from scansnap.validation.user_code import called, describe_error, run_user_file
from scansnap.validation.validate import validated


@validated
def read_claims(path: str | Path) -> list[Claim]:
    r"""Run a Python file and return the claims that it defines, in order.

    >>> from pathlib import Path
    >>> text = "import scansnap as ss\n@ss.claim(where='here')\ndef it_holds(check):\n    'It holds.'"
    >>> _ = Path("my_claims.py").write_text(text)
    >>> [claim.id for claim in ss.read_claims("my_claims.py")]
    ['it_holds']
    """
    claims = claims_of(run_user_file(path))
    if not claims:
        raise InputError(f"{path} defines no claim: make one with the decorator scansnap.claim.")
    return claims


@validated
def verify(
    *ids: str,
    claims: Annotated[Sequence[Claim], SequenceType(None, "claims")] | None = None,
    system: System | str | None = None,
    classes: Data | None = None,
    lr_y: float | None = None,
    lr_z: float | None = None,
    progress: bool | None = None,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Check the paper's claims, or your own, each in its own setting or on your classes and rates.

    A claim that says nothing about your classes gets the verdict "does not apply"; if it is the only claim, it raises
    an `InputError`.

    Parameters
    ----------
    ids : str
        The claims to check, by id, or as the paper numbers what they are about: "Eq. 10", "Lemma 3", "Section 6 (b)".
        By default all of `claims`, or all of the paper's.
    claims : sequence of Claim
        Your own claims, made with the decorator `claim`.
    system : System or name
        Check the claims about this system: its gradient, its invariants, and those of its paper.
    classes : SequenceClasses or name
        Classes to check the claims on, in place of their own.
    lr_y, lr_z : float
        Learning rates, in place of the claims' own.
    progress : bool
        Show a progress bar, or nothing if false; by default a bar on a terminal, and elsewhere an occasional line.
    on_verdict : callable
        Called with each verdict as it is reached.

    Examples
    --------
    >>> (verdict,) = ss.verify("lemma_6")
    >>> print(verdict.id, verdict.verdict)
    lemma_6 holds
    """
    if system is not None:
        claims = [*claims_about(SYSTEMS.member(system)), *(claims or ())]
    selected = select(*ids, claims=claims)
    check_rates(lr_y=lr_y, lr_z=lr_z)
    given = {"classes": None if classes is None else as_source(classes).classes, "lr_y": lr_y, "lr_z": lr_z}
    changes = {name: value for name, value in given.items() if value is not None}
    verdicts = []
    with progress_bar("checking", None, progress) as show:  # claims take from milliseconds to minutes
        for i, claim in enumerate(selected):
            alone = len(selected) == 1
            words = claim.id if alone else f"{claim.id} ({i + 1} of {len(selected)})"

            def show_part(label: str, words: str = words) -> None:
                show(0, f"{words}, after: {readable(label)}")

            show(0, words)
            began = time.perf_counter()
            verdict = _verdict(claim, changes, alone=alone, on_measurement=show_part)
            verdicts.append(replace(verdict, seconds=time.perf_counter() - began))
            if on_verdict:
                called("on_verdict", on_verdict, verdicts[-1])
    return verdicts


def select(*ids: str, claims: Sequence[Claim] | None = None) -> list[Claim]:
    """The claims named, among the paper's and `claims`; without names all of `claims`, or all of the paper's."""
    known = by_id([*own_claims().values(), *(claims or ())])
    if not ids:
        return list(paper_claims() if claims is None else claims)
    selected: dict[str, Claim] = {}
    for name in ids:
        written = re.sub(r"[\s-]+", "_", name.strip().lower())  # theorem-2
        for found in (name,) if name in known else claims_at(name) or (written,):
            if found not in known:
                known = {**installed_claims(), **known}
            if found not in known:
                own = [claim.id for claim in claims or ()]
                raise unknown("claim", found, dict.fromkeys([*own, *get_close_matches(found, known)]) if own else known)
            selected[found] = known[found]
    return list(selected.values())


def _verdict(
    claim: Claim, changes: Mapping[str, Any], *, alone: bool, on_measurement: Callable[[str], None]
) -> Verdict:
    """The verdict on one claim in its own setting with these changes; errors in its code are sentences that name it."""
    setting = None
    try:
        setting = replace(claim.setting(), **changes)
        return claim.run(setting, on_measurement=on_measurement)
    except ScanSnapError as error:
        sentence = str(error) if claim.id in str(error) else f"{claim.id}: {error}"
        if alone or setting is None or not isinstance(error, InputError):
            raise type(error)(sentence) from error
        return Verdict(claim, setting, (), None, reason=sentence)
    except Exception as error:
        file = getattr(getattr(claim.check, "__code__", None), "co_filename", "")
        raise InputError(f"the check of {claim.id} fails with {describe_error(error, file)}.") from error
