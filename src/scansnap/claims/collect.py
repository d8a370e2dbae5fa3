"""Claims of modules and of Python files: the paper's and a user's are collected in the same way."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from scansnap.claims.claim import Claim
from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation.user_code import run_user_file
from scansnap.validation.validate import validated


def claims_of(module: ModuleType) -> list[Claim]:
    """The claims that a module defines, in order; not those that it imports."""
    unique = {id(value): value for value in vars(module).values() if isinstance(value, Claim)}
    return [claim for claim in unique.values() if not _imported(claim, module)]


def _imported(claim: Claim, module: ModuleType) -> bool:
    home = sys.modules.get(claim.check.__module__)
    return home is not None and home is not module and any(value is claim for value in vars(home).values())


def by_id(claims: Iterable[Claim]) -> dict[str, Claim]:
    """Claims by id, which must be unique."""
    listed: dict[str, Claim] = {}
    for claim in claims:
        if not isinstance(claim, Claim):
            raise InputError(f"{short_repr(claim)} is not a claim: make one with the decorator scansnap.claim.")
        if listed.setdefault(claim.id, claim) is not claim:
            raise InputError(f"there is a claim called '{claim.id}' already: give yours another name.")
    return listed


@validated
def read_claims(path: str | Path) -> list[Claim]:
    r"""Run a Python file and return the claims that it defines, in order.

    >>> from pathlib import Path
    >>> text = "import scansnap as ss\n@ss.claim('It holds.', where='here')\ndef it_holds(check):\n    'By itself.'"
    >>> _ = Path("my_claims.py").write_text(text)
    >>> [claim.id for claim in ss.read_claims("my_claims.py")]
    ['it_holds']
    """
    claims = claims_of(run_user_file(path))
    if not claims:
        raise InputError(f"{path} defines no claim: make one with the decorator scansnap.claim.")
    return claims
