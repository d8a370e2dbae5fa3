"""The claims that `verify` finds: of Scan and Snap, of the papers in `scansnap/papers`, and of installed papers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from types import ModuleType

from scansnap.claims.claim import Claim
from scansnap.claims.systems import general_claims
from scansnap.runtime.errors import InputError, short_repr
from scansnap.systems.catalog import OWN_PAPERS, collect_from_papers, installed_papers, paper_of
from scansnap.systems.system import System

MODULES = (
    "gradients",
    "growth",
    "decoder",
    "overlaps",
    "sampling",
    "attention",
    "phases",
    "asymptotics",
    "rates",
    "extensions",
    "discussion",
    "true_sgd",
)
"""The modules that define the paper's claims, in the paper's order; the last has claims of our own."""

STATEMENTS = (
    "lemma",
    "theorem",
    "corollary",
    "remark",
    "assumption",
    "equation",
    "definition",
    "figure",
    "section",
    "appendix",
)
"""Kinds of numbered statements, in the order in which they are listed."""


def paper_claims() -> list[Claim]:
    """The package's claims: the paper's numbered statements, sorted, then the others as their modules list them."""

    def place(claim: Claim) -> tuple[int, int]:
        kind, number = (*claim.id.split("_"), "")[:2]
        return (
            STATEMENTS.index(kind) if kind in STATEMENTS else len(STATEMENTS),
            int(number) if number.isdigit() else 0,
        )

    modules = (import_module(f"scansnap.claims.{name}") for name in MODULES)
    return sorted(by_id(claim for module in modules for claim in claims_of(module)).values(), key=place)


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


@cache
def own_claims() -> dict[str, Claim]:
    """All claims of this package by id: those of Scan and Snap, then those of the other papers."""
    others = collect_from_papers("claims", _claims_by_id, OWN_PAPERS)
    return by_id([*paper_claims(), *others.values()])


@cache
def installed_claims() -> dict[str, Claim]:
    """The claims of installed papers by id."""
    return collect_from_papers("claims", _claims_by_id, installed_papers(), own_claims())


def all_claims() -> list[Claim]:
    """The claims that `verify` finds by name: the paper's, then those of other papers and of installed ones."""
    return list(by_id([*own_claims().values(), *installed_claims().values()]).values())


def _claims_by_id(module: ModuleType) -> dict[str, Claim]:
    return by_id(claims_of(module))


def claims_about(system: System) -> list[Claim]:
    """What every system claims, and the claims of the paper that it comes from."""
    paper = paper_of(type(system))
    claims = {} if paper is None else own_claims() if paper in OWN_PAPERS else installed_claims()
    return [*general_claims(system), *(claim for claim in claims.values() if paper_of(claim.check) == paper)]
