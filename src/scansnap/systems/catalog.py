"""Systems by name, and the papers that bring them.

A paper is a package with a module `system` (what is trained, and its presets) and, if it has them, `claims` and
`figure`.  Those of this package are the folders of `scansnap/papers`.  Another distribution names its package by an
entry point, which is read when a name is unknown here or when all names are listed:

    [project.entry-points."scansnap.papers"]
    stairs = "stairs"

A paper of another distribution that fails to import, or that takes a name that exists, is left out with a warning.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Literal, TypeVar

from scansnap.data.named_classes import NAMED_CLASSES
from scansnap.runtime.errors import InputError, PaperWarning
from scansnap.systems import system
from scansnap.validation.user_code import describe_error

Value = TypeVar("Value")

SYSTEMS = system.SYSTEMS
"""Systems by name: `--system`.  The paper's (Y, Z) is given by its classes and is not listed here.

>>> all(isinstance(ss.SYSTEMS.member(name), ss.System) for name in ss.SYSTEMS)
True
"""

YZ = "scan-and-snap"
"""How lists call the paper's own system."""

OWN_PAPERS = tuple(
    f"scansnap.papers.{path.parent.name}" for path in sorted((Path(__file__).parents[1] / "papers").glob("*/system.py"))
)
"""The packages of the papers that this package has."""

for package in OWN_PAPERS:
    import_module(f"{package}.system")

OWN_SYSTEMS = tuple(SYSTEMS)
"""The names of the systems that this package has."""

_INSTALLED_PAPERS: list[str] = []


def _find_installed_papers() -> None:
    """Register the systems of other distributions' papers."""
    for point in sorted(importlib.metadata.entry_points(group="scansnap.papers")):
        if point.module in (*OWN_PAPERS, *_INSTALLED_PAPERS):
            continue
        try:
            with SYSTEMS.all_or_none():
                import_module(f"{point.module}.system")
                for name in {YZ, *NAMED_CLASSES} & {*SYSTEMS}:
                    raise InputError(f"the name '{name}' exists already")
        except (Exception, SystemExit) as error:
            _leave_out(f"the paper {point.name}", error)
        else:
            _INSTALLED_PAPERS.append(point.module)


SYSTEMS.search_once(_find_installed_papers)


def installed_papers() -> tuple[str, ...]:
    """The packages of papers that other distributions have."""
    len(SYSTEMS)  # which finds them
    return tuple(_INSTALLED_PAPERS)


def paper_of(part: type | Callable[..., object]) -> str | None:
    """The package of the paper that a class or function belongs to; None if it is no paper's."""
    for papers in (lambda: OWN_PAPERS, installed_papers):
        for package in papers():
            if part.__module__.startswith(f"{package}."):
                return package
    return None


def collect_from_papers(
    module: Literal["claims", "figure"],
    members: Callable[[ModuleType], Mapping[str, Value]],
    papers: Collection[str],
    taken: Collection[str] = (),
) -> dict[str, Value]:
    """By name, what papers have in the module of that name; an installed paper's name that is taken is left out."""
    collected: dict[str, Value] = {}
    for package in papers:
        if find_spec(f"{package}.{module}") is None:
            continue
        try:
            own = members(import_module(f"{package}.{module}"))
            if existing := [name for name in own if name in taken or name in collected]:
                raise InputError(f"the name '{existing[0]}' exists already")
            collected |= own
        except (Exception, SystemExit) as error:
            if package in OWN_PAPERS:
                raise
            _leave_out(f"the module {package}.{module}", error)
    return collected


def _leave_out(what: str, error: BaseException) -> None:
    warnings.warn(f"{what} is left out: {describe_error(error)}.", PaperWarning, stacklevel=3)
