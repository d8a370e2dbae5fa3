"""Running a user's files and functions, and digests of their code.

A mistake in a user's code is reported in one sentence.

A result names a user's part by its class and settings, which stay the same when the code is edited: a store would then
be continued by other code, or read as if this code had made it.  The digest of a part sees its functions, what they use
from the same file, and numbers, text and arrays set there; it does not see comments, layout, or what is imported from
elsewhere.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import numpy as np

from scansnap.runtime.errors import InputError, ScanSnapError

Description = None | int | float | str | bytes | list["Description"] | tuple["Description", ...]


# --- running it -------------------------------------------------------------------------------------------------------


def run_user_file(path: str | Path) -> ModuleType:
    """The module defined by a Python file."""
    path = Path(path)
    module = ModuleType(f"<{path}>")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses, for example, look up the file's names here
    sys.path.insert(0, str(path.parent))  # as for a script: modules beside the file can be imported
    try:
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except OSError as error:
        raise InputError(f"cannot read the file {path}: {error.strerror or error}.") from None
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot run the file {path}: {describe_error(error, str(path))}.") from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def called(name: str, function: Callable[..., object], *arguments: object) -> object:
    """What a user's function gives; an error in it is a sentence that begins with the name."""
    try:
        return function(*arguments)
    except BrokenPipeError:  # a command's own function prints, and nobody reads on
        raise
    except Exception as error:
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        raise InputError(f"{name} fails with {describe_error(error, file)}.") from error


def user_mistake(error: BaseException) -> str | None:
    """The error in words, if it comes out of a user's file that was run here."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = [file for file in files if f"<{file}>" in sys.modules]
    return f"{describe_error(error, own[-1])}." if own else None


def describe_error(error: BaseException, file: str = "") -> str:
    """An exception in words: its message, its type unless it is scansnap's own, and the last line of the file in it."""
    message = " ".join(str(error).split()).removesuffix(".")
    if not isinstance(error, ScanSnapError):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{message} ({Path(file).name}, line {lines[-1]})" if lines else message


# --- digests ----------------------------------------------------------------------------------------------------------


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
