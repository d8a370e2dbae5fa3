"""What covers each statement and equation of the paper: claims, figures, or the reason why there is none.

The table is `coverage.toml`.  So the paper's own names find claims: "Eq. 10", "Lemma 3", "Section 6 (b)".
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scansnap.runtime.errors import InputError

TABLE = Path(__file__).with_name("coverage.toml")
EQUATION = re.compile(r"(?:eqs?\.?|equations?)\s*\(?(\d+)\)?", re.IGNORECASE)


@dataclass(frozen=True)
class CoveredStatement:
    """A row of the table."""

    at: str
    """Where the paper states it, such as "Theorem 4" or "Section 6 (b)"."""
    words: str
    """What it says, in brief."""
    equations: Sequence[int] = ()
    claims: Sequence[str] = ()
    """Ids of `scansnap verify`."""
    figures: Sequence[str] = ()
    """Names of `scansnap figure`, and of studies."""
    reason: str = ""
    """Why no claim is about it, or what you should know."""


@functools.cache
def read_coverage() -> dict[str, list[CoveredStatement]]:
    """The rows of the table, by the part of the paper that they are in."""
    parts = tomllib.loads(TABLE.read_text(encoding="utf-8"))["part"]
    return {part["name"]: [CoveredStatement(**row) for row in part["statements"]] for part in parts}


def claims_at(place: str) -> list[str] | None:
    """The ids of the claims about a place of the paper, as the paper writes it; None if it has no such place.

    "Theorem 4" also finds its parts and its proof.  If no claim is about the place, an error gives the reason.
    """
    rows = [row for part in read_coverage().values() for row in part if _is_at(row, place)]
    if not rows:
        return None
    if ids := list(dict.fromkeys(name for row in rows for name in row.claims)):
        return ids
    figures = list(dict.fromkeys(name for row in rows for name in row.figures))
    reasons = [*(f"see scansnap figure {name}" for name in figures), *(row.reason for row in rows if row.reason)]
    raise InputError(f"no claim is about {' '.join(place.split())} ({rows[0].words}): {'; '.join(reasons)}.")


def _is_at(row: CoveredStatement, place: str) -> bool:
    if equation := EQUATION.fullmatch(place.strip()):
        return int(equation[1]) in row.equations
    wanted, at = (" ".join(text.lower().split()) for text in (place, row.at))
    return at == wanted or at.startswith((f"{wanted},", f"{wanted} ("))
