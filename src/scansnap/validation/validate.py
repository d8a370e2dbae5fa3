"""One door for the arguments of public functions.

    @door
    def synthetic(*, num_query: int, vocab_size: int | None = None) -> SequenceClasses: ...

`@door` checks every argument by its annotation, with the kinds of `kinds.py`: whatever a user gives, the function sees
values of the kinds that it names, or it is not called and an `InputError` says why.  A new function needs nothing but
the decorator.  Limits that a type cannot state are checked inside, by `checks.py`.

`@formula` is a door for functions of arrays, whose shapes no annotation states.  What NumPy refuses there (shapes that
do not fit, a singular matrix) is the caller's mistake, and is said as such.  Both say so of sizes beyond memory.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from scansnap.runtime.errors import InputError, ScanSnapError, brief
from scansnap.validation.argument_types import Kind, kind_of
from scansnap.validation.checks import shortened

Guarded = TypeVar("Guarded", bound=Callable[..., Any])

UNFIT = (ArithmeticError, IndexError, MemoryError, ValueError)
"""What arithmetic raises at arguments that do not fit together."""


def door(function: Guarded) -> Guarded:
    """A decorator that checks arguments by their annotations; those of a class are its constructor's."""
    if isinstance(function, type):
        function.__init__ = _checked(function.__init__, (MemoryError,))  # type: ignore[misc]
        return function
    return _checked(function, (MemoryError,))


def formula(function: Guarded) -> Guarded:
    """A door for functions of arrays: what their arithmetic refuses is an `InputError` too."""
    return _checked(function, UNFIT)


def _checked(function: Guarded, refused: tuple[type[Exception], ...]) -> Guarded:
    gate = Gate(function)

    @functools.wraps(function)
    def enter(*arguments: Any, **words: Any) -> Any:
        try:
            arguments, words = gate.check(arguments, words)
            return function(*arguments, **words)
        except refused as error:
            if isinstance(error, ScanSnapError):
                raise
            shapes = ", ".join(gate.shapes(arguments, words))
            name = function.__qualname__.removesuffix(".__init__")
            raise InputError(f"{name} cannot be computed from {shapes}: {brief(error)}.") from error

    enter.gate = gate  # type: ignore[attr-defined]
    return cast(Guarded, enter)


class Gate:
    """The kinds of a function's parameters, found at the first call: annotations may name what is defined later."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @functools.cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self._function).parameters.values())

    @functools.cached_property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each parameter that does not take any value."""
        names = inspect.unwrap(self._function).__globals__
        hints = {
            parameter.name: _meaning(parameter.annotation, names)
            for parameter in self._parameters
            if isinstance(parameter.annotation, str)
        }
        return {name: kind for name, hint in hints.items() if (kind := kind_of(hint)) is not None}

    @functools.cached_property
    def _positional(self) -> list[tuple[str, Kind | None]]:
        """The parameters that positional arguments fill."""
        return [
            (p.name, self.kinds.get(p.name))
            for p in self._parameters
            if p.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]

    @functools.cached_property
    def _rest(self) -> tuple[str, Kind | None]:
        """What further positional arguments are: `*ids: str`."""
        name = next((p.name for p in self._parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "")
        return f"an entry of {name}", self.kinds.get(name)

    def check(self, arguments: tuple[Any, ...], words: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in plain form, or an `InputError`."""
        if arguments:
            expected = self._positional + [self._rest] * (len(arguments) - len(self._positional))
            arguments = tuple(
                value if kind is None else kind.check(name, value)
                for (name, kind), value in zip(expected, arguments, strict=False)
            )
        for name, value in words.items():
            if (kind := self.kinds.get(name)) is not None:
                words[name] = kind.check(name, value)
        return arguments, words

    def shapes(self, arguments: tuple[Any, ...], words: dict[str, Any]) -> list[str]:
        """Each argument in words: an array by its shape."""
        values = {**dict(zip((name for name, _ in self._positional), arguments, strict=False)), **words}
        return [
            f"{name} of shape {value.shape}" if isinstance(value, np.ndarray) else f"{name} {shortened(value)}"
            for name, value in values.items()
        ]


def _meaning(annotation: str, names: dict[str, Any]) -> Any:
    """What an annotation allows; anything where it names what is imported for type checkers alone."""
    try:
        return eval(annotation, names)
    except NameError:
        return Any
