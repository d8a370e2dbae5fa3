"""Registries of named members, to which users add their own.

An argument that takes a member accepts its name or the object itself.  The package registers its own members with the
same call as users.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar, cast

from scansnap.runtime.errors import InputError, short_repr, unknown
from scansnap.validation.user_code import code_digest, is_own

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
            if value not in self._makers:
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
        """What a member is, with the digest of its code, if it is a user's own."""
        member = self.member(value)
        return {f"{self._what} {self.label(value)}": code_digest(member)} if is_own(member) else {}

    def _wanted(self) -> str:
        return " and ".join(f"{method}(...)" for method in self._methods)

    def __getitem__(self, name: str) -> Callable[[], Member]:
        return self._makers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _definition(maker: object) -> tuple[object, object]:
    """Where a member is defined; unlike any other where that cannot be told."""
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
