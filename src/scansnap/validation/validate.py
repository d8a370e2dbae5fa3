"""Decorators that validate the arguments of public functions.

    @validated
    def synthetic(*, num_query: int, vocab_size: int | None = None) -> SequenceClasses: ...

`@validated` checks every argument by its annotation, with the types of `argument_types.py`.  The function gets values
of those types, or it is not called and an `InputError` says why.  Limits that a type cannot state are checked inside
the function, by `checks.py`.

`@formula` is for functions of arrays, whose shapes no annotation states.  What NumPy refuses there (shapes that do not
fit, a singular matrix) becomes an `InputError` too.  Both turn a `MemoryError` into one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from scansnap.runtime.errors import InputError, ScanSnapError, brief, short_repr
from scansnap.validation.argument_types import ArgumentType, argument_type_of

Function = TypeVar("Function", bound=Callable[..., Any])

UNFIT = (ArithmeticError, IndexError, MemoryError, ValueError)
"""What arithmetic raises at arguments that do not fit together."""


def validated(function: Function) -> Function:
    """A decorator that checks arguments by their annotations; those of a class are its constructor's."""
    if isinstance(function, type):
        function.__init__ = _checked(function.__init__, (MemoryError,))  # type: ignore[misc]
        return function
    return _checked(function, (MemoryError,))


def formula(function: Function) -> Function:
    """A decorator for functions of arrays: what their arithmetic refuses is an `InputError` too."""
    return _checked(function, UNFIT)


def _checked(function: Function, refused: tuple[type[Exception], ...]) -> Function:
    validator = Validator(function)

    @functools.wraps(function)
    def validate(*arguments: Any, **kwargs: Any) -> Any:
        try:
            arguments, kwargs = validator.check(arguments, kwargs)
            return function(*arguments, **kwargs)
        except refused as error:
            if isinstance(error, ScanSnapError):
                raise
            shapes = ", ".join(validator.shapes(arguments, kwargs))
            name = function.__qualname__.removesuffix(".__init__")
            raise InputError(f"{name} cannot be computed from {shapes}: {brief(error)}.") from error

    validate.validator = validator  # type: ignore[attr-defined]
    return cast(Function, validate)


class Validator:
    """The argument types of a function, found at the first call: annotations may name what is defined later."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @functools.cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self._function).parameters.values())

    @functools.cached_property
    def types(self) -> dict[str, ArgumentType]:
        """The type of each parameter that does not take any value."""
        names = inspect.unwrap(self._function).__globals__
        hints = {
            parameter.name: _meaning(parameter.annotation, names)
            for parameter in self._parameters
            if isinstance(parameter.annotation, str)
        }
        return {name: found for name, hint in hints.items() if (found := argument_type_of(hint)) is not None}

    @functools.cached_property
    def _positional(self) -> list[tuple[str, ArgumentType | None]]:
        """The parameters that positional arguments fill."""
        return [
            (p.name, self.types.get(p.name))
            for p in self._parameters
            if p.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]

    @functools.cached_property
    def _rest(self) -> tuple[str, ArgumentType | None]:
        """What further positional arguments are: `*ids: str`."""
        name = next((p.name for p in self._parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "")
        return f"an entry of {name}", self.types.get(name)

    def check(self, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in plain form, or an `InputError`."""
        if arguments:
            expected = self._positional + [self._rest] * (len(arguments) - len(self._positional))
            arguments = tuple(
                value if expected_type is None else expected_type.check(name, value)
                for (name, expected_type), value in zip(expected, arguments, strict=False)
            )
        for name, value in kwargs.items():
            if (expected_type := self.types.get(name)) is not None:
                kwargs[name] = expected_type.check(name, value)
        return arguments, kwargs

    def shapes(self, arguments: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """Each argument in words: an array by its shape."""
        values = {**dict(zip((name for name, _ in self._positional), arguments, strict=False)), **kwargs}
        return [
            f"{name} of shape {value.shape}" if isinstance(value, np.ndarray) else f"{name} {short_repr(value)}"
            for name, value in values.items()
        ]


def _meaning(annotation: str, names: dict[str, Any]) -> Any:
    """What an annotation allows; anything where it names what is imported for type checkers alone."""
    try:
        return eval(annotation, names)
    except NameError:
        return Any
