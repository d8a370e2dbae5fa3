"""The paper's claims, collected from the modules that define them."""

from __future__ import annotations

from scansnap.claims import (
    attention,
    beyond,
    decoder,
    discussion,
    distinct,
    gradients,
    growth,
    growth_factor,
    heads,
    overlaps,
    phases,
    positional_prior,
    rates,
    readings,
    residual,
    sampling,
    shift,
)
from scansnap.claims.claim import Claim
from scansnap.claims.collect import by_id, claims_of

MODULES = (
    attention,
    beyond,
    decoder,
    discussion,
    distinct,
    gradients,
    growth,
    growth_factor,
    heads,
    overlaps,
    phases,
    positional_prior,
    rates,
    readings,
    residual,
    sampling,
    shift,
)

_KINDS = (
    "lemma",
    "theorem",
    "corollary",
    "remark",
    "assumption",
    "equation",
    "definition",
    "figure",
    "table",
    "section",
    "appendix",
)


def claims() -> list[Claim]:
    """All claims: the paper's numbered statements, kind by kind, then the others as their modules list them."""

    def place(claim: Claim) -> tuple[int, int]:
        kind, number = (*claim.id.split("_"), "")[:2]
        return (_KINDS.index(kind) if kind in _KINDS else len(_KINDS), int(number) if number.isdigit() else 0)

    return sorted(by_id(claim for module in MODULES for claim in claims_of(module)).values(), key=place)
