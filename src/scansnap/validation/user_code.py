"""The user's own parts: registries to which users add them, how their code is run, and digests of it.

An argument that takes a registered member accepts its name or the object itself.  The package registers its own members
with the same call as users.

A mistake in a user's code is reported in one sentence.

A result names a user's part by its class and settings, which stay the same when the code is edited: a store would then
be continued by other code, or read as if this code had made it.  The digest of a part sees its functions, what they use
from the same file, and numbers, text and arrays set there; it does not see comments, layout, or what is imported from
elsewhere.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, TypeVar, cast

import numpy as np

from scansnap.runtime.errors import InputError, ScanSnapError, short_repr, unknown

Member = TypeVar("Member")
Defined = TypeVar("Defined")


class Registry(Mapping[str, Callable[[], Member]], Generic[Member]):
    """Named members and the callables that make them.

    Parameters
    ----------
    what : str
        What a member is, in the words of an error: "optimizer".
    methods : tuple of str
        The methods that every member must have; an object without them is refused.
    """

    def __init__(self, what: str, *methods: str) -> None:
        self._what = what
        self._methods = methods
        self._makers: dict[str, Callable[[], Member]] = {}
        self._search: Callable[[], None] | None = None

    def search_once(self, search: Callable[[], None]) -> None:
        """Call `search`, which registers further members, before a name counts as unknown or all names are listed."""
        self._search = search

    def _complete(self) -> None:
        search, self._search = self._search, None
        if search is not None:
            search()

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Undo what is registered inside if an error is raised there."""
        before = dict(self._makers)
        try:
            yield
        except BaseException:
            self._makers = before
            raise

    def __repr__(self) -> str:
        return f"<{self._what}: {', '.join(self._makers)}>"

    def register(self, name: str) -> Callable[[Defined], Defined]:
        """A decorator that adds a member under a name: a class or function that makes it without arguments, or itself.

        The same definition, run again, replaces what it added before, as it must in a notebook.
        """
        if not isinstance(name, str) or not re.fullmatch(r"[\w-]+", name):
            raise InputError(f"the name of the {self._what} is {short_repr(name)}: use letters, digits, _ and -.")

        def add(defined: Defined) -> Defined:
            maker = self._maker(name, defined)
            known = self._makers.get(name, maker)
            if known is not maker and _definition(known) != _definition(maker):
                raise InputError(f"the {self._what} '{name}' exists already: give yours another name.")
            self._makers[name] = maker
            return defined

        return add

    def _maker(self, name: str, defined: Any) -> Callable[[], Member]:
        if not isinstance(defined, type) and not self._missing(defined) and (self._methods or not callable(defined)):
            return functools.wraps(defined)(lambda: defined)
        try:
            inspect.signature(defined).bind()
        except ValueError:
            pass  # Python does not know the signature
        except TypeError as error:
            raise InputError(
                f"the {self._what} '{name}' cannot be made from {short_repr(defined)} ({error}): register an object, "
                "or a class whose settings all have defaults."
            ) from None
        return cast(Callable[[], Member], defined)

    def member(self, value: str | Member) -> Member:
        """The member with this name, or the object itself."""
        if isinstance(value, str):
            if value not in self:
                own = [f"or give an object with {self._wanted()}"] if self._methods else []
                raise unknown(self._what, value, [*self._makers, *own])
            value = self._makers[value]()
        if self._missing(value) or isinstance(value, type):
            raise InputError(
                f"{self._what} is {short_repr(value)}: give one of {', '.join(self._makers)}, or an object with "
                f"{self._wanted()}."
            )
        return value

    def _missing(self, value: object) -> list[str]:
        return [method for method in self._methods if not callable(getattr(value, method, None))]

    def label(self, value: str | Member) -> str:
        """What a result calls a member: the name it is registered under, with its non-default settings."""
        if isinstance(value, str):
            return value
        for name, maker in self._makers.items():
            if getattr(maker, "__wrapped__", None) is value:
                return name
            if maker is type(value):
                return name + _settings(value)
        return _qualified(value) + _settings(value)

    def code(self, value: str | Member) -> dict[str, str]:
        """The digest of the code of a user's own member, by its label; empty for a member of the package."""
        member = self.member(value)
        return {f"{self._what} {self.label(value)}": code_digest(member)} if is_own(member) else {}

    def _wanted(self) -> str:
        return " and ".join(f"{method}(...)" for method in self._methods)

    def __getitem__(self, name: str) -> Callable[[], Member]:
        if name not in self._makers:
            self._complete()
        return self._makers[name]

    def __iter__(self) -> Iterator[str]:
        self._complete()
        return iter(self._makers)

    def __len__(self) -> int:
        self._complete()
        return len(self._makers)


def _definition(maker: object) -> tuple[object, object]:
    """The module and the name of a member's definition, or the member itself if it has no name."""
    function = inspect.unwrap(maker) if callable(maker) else maker
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)


def _qualified(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _settings(value: object) -> str:
    """`(momentum=0.9)`: the settings that distinguish an object from others of its class."""
    if not is_dataclass(value) or isinstance(value, type):
        settings = {name: setting for name, setting in getattr(value, "__dict__", {}).items() if name[0] != "_"}
    else:
        settings = {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if field.init and getattr(value, field.name) != cast(object, field.default)
        }
    words = ", ".join(f"{name}={setting!r}" for name, setting in settings.items())
    return f"({words})" if words else ""


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
    """Call a user's function; an error in it becomes an `InputError` that begins with the name."""
    try:
        return function(*arguments)
    except BrokenPipeError:  # a command's own function prints, and nobody reads on
        raise
    except Exception as error:
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        raise InputError(f"{name} fails with {describe_error(error, file)}.") from error


def user_mistake(error: BaseException) -> str | None:
    """The error in words, if it was raised in a user's file that was run here; otherwise None."""
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
