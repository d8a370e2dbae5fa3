"""Whether a user's code has changed since a store was begun.

A result names a user's part by its class and settings, which stay the same when the code is edited: a store would then
be continued by other code, or read as if this code had made it.  The digest of a part sees its functions, what they use
from the same file, and numbers, text and arrays set there; it does not see comments, layout, or what is imported from
elsewhere.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from types import CodeType, FunctionType

import numpy as np

Description = None | int | float | str | bytes | list["Description"] | tuple["Description", ...]


def is_own(part: object) -> bool:
    """Whether a part is a user's, and not this package's."""
    return not _home(part).startswith("scansnap.")


def code_digest(part: object) -> str:
    """Twelve hex digits that change with the code of a user's part."""
    texts = "\n".join(_texts(part, _home(part), set()))
    return hashlib.sha256(texts.encode()).hexdigest()[:12]


def identified(value: object) -> Description:
    """What identifies a value, the same in every process."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if isinstance(fingerprint := getattr(value, "fingerprint", None), str):
        return fingerprint
    if isinstance(value, Mapping):
        return [(str(key), identified(inner)) for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return [identified(inner) for inner in value]
    return value if value is None or isinstance(value, int | float | str | bytes) else type(value).__qualname__


def _home(part: object) -> str:
    return (part if isinstance(part, FunctionType | type) else type(part)).__module__


def _texts(part: object, home: str, seen: set[int]) -> Iterator[str]:
    """The code of a part, and of all that it uses from its home module."""
    if isinstance(part, property | cached_property | staticmethod | classmethod):
        part = part.fget if isinstance(part, property) else getattr(part, "func", None) or part.__func__  # type: ignore[union-attr]
    if _home(part) != home:
        if not isinstance(part, list | dict):  # which a function may fill as it goes
            yield str(identified(part))
        return
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, FunctionType):
        yield _source(part)
        used = [part.__globals__[name] for name in _names(part.__code__) if name in part.__globals__]
        used += [cell.cell_contents for cell in part.__closure__ or ()]
    elif isinstance(part, type):
        inner = (value for name, value in vars(part).items() if callable(value) or not name.startswith("__"))
        used = [*part.__bases__, *inner]
    else:
        settings = getattr(part, "__dict__", {})
        used = [type(part), *(value for name, value in settings.items() if not name.startswith("_"))]
    for value in used:
        yield from _texts(value, home, seen)


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function looks up, also in functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _source(function: FunctionType) -> str:
    """The source without comments and layout; empty where there is none, as for what a dataclass adds."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    try:
        return ast.unparse(ast.parse(text))
    except SyntaxError:  # a lambda within a longer expression
        return text
