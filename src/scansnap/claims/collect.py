"""Claims of modules and of Python files: the paper's and a user's are collected in the same way."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from scansnap.base.errors import InputError, ScanSnapError
from scansnap.claims.claim import Claim


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
            raise InputError(f"{claim!r:.60} is not a claim: make one with the decorator scansnap.claim.")
        if listed.setdefault(claim.id, claim) is not claim:
            raise InputError(f"there is a claim called '{claim.id}' already: give yours another name.")
    return listed


def read_claims(path: str | Path) -> list[Claim]:
    """Run a Python file and return the claims that it defines, in order."""
    path = Path(path)
    module = ModuleType(f"<claims of {path}>")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses, for example, look for the names of the file
    sys.path.insert(0, str(path.parent))  # as for a script: modules beside the file can be imported
    try:
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except OSError as error:
        raise InputError(f"cannot read the claims file {path}: {error.strerror or error}.") from None
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot run the claims file {path}: {described(error, str(path))}.") from error
    finally:
        sys.path.remove(str(path.parent))
    claims = claims_of(module)
    if not claims:
        raise InputError(f"{path} defines no claim: make one with the decorator scansnap.claim.")
    return claims


def described(error: BaseException, file: str) -> str:
    """An exception in words: its message, its type unless it is scansnap's own, and the last line of the file in it."""
    message = " ".join(str(error).split()).removesuffix(".")
    if not isinstance(error, ScanSnapError):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{message} ({Path(file).name}, line {lines[-1]})" if lines else message
