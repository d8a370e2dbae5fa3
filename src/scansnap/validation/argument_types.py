"""Types of arguments: what each accepts, how it is read from the command line, and how it is written to a file.

The type of an argument follows from its annotation (`argument_type_of`), for fields of options and for parameters of
functions.  Where the annotation alone does not say enough, it contains the argument type:

    Seed = Annotated[int, IntegerType({"most": 2**63 - 1})]
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation import checks
from scansnap.validation.user_code import Registry

Member = TypeVar("Member")
Number = TypeVar("Number", int, float)

NONE = "none"
"""None in files and on the command line."""

NO_LIMITS: Mapping[str, Any] = types.MappingProxyType({})


@dataclass(frozen=True)
class ArgumentType:
    """The values that an argument takes; by default any text."""

    @property
    def wanted(self) -> str:
        """What to give, in the words of an error."""
        return "text"

    def check(self, name: str, value: Any) -> Any:
        """The value in plain form, or an `InputError`."""
        return checks.text(name, value)

    def read(self, name: str, text: str) -> Any:
        """The value that a word of the command line stands for, not yet checked."""
        return text

    def plain(self, value: Any) -> Any:
        """The value as JSON and TOML can hold it."""
        return value

    def code(self, value: Any) -> dict[str, str]:
        """The user's code in the value: what it is, with its digest."""
        return {}


@dataclass(frozen=True)
class IntegerType(ArgumentType):
    """A whole number."""

    limits: Mapping[str, int] = field(default_factory=dict)

    wanted = "a whole number"

    def check(self, name: str, value: Any) -> int:
        return checks.integer(name, value, **self.limits)

    def read(self, name: str, text: str) -> int:
        return read_number(name, text, int, "a whole number")


@dataclass(frozen=True)
class NumberType(ArgumentType):
    """A finite number."""

    limits: Mapping[str, float] = field(default_factory=dict)

    wanted = "a number"

    def check(self, name: str, value: Any) -> float:
        return checks.number(name, value, **self.limits)

    def read(self, name: str, text: str) -> float:
        return read_number(name, text, float, "a number")


@dataclass(frozen=True)
class FlagType(ArgumentType):
    """True or False."""

    wanted = "True or False"

    def check(self, name: str, value: Any) -> Any:
        return checks.flag(name, value)

    def read(self, name: str, text: str) -> bool:
        words = {"yes": True, "true": True, "no": False, "false": False}
        if text.lower() not in words:
            raise InputError(f"{name} is '{text}': give yes or no.")
        return words[text.lower()]


@dataclass(frozen=True)
class ChoiceType(ArgumentType):
    """One of a closed list of names."""

    names: tuple[str, ...]

    @property
    def wanted(self) -> str:
        return f"one of {', '.join(self.names)}"

    def check(self, name: str, value: Any) -> str:
        return checks.one_of(name, value, self.names)


@dataclass(frozen=True)
class OptionalType(ArgumentType):
    """None, or a value of another type."""

    inner: ArgumentType

    @property
    def wanted(self) -> str:
        return f"None or {self.inner.wanted}"

    def check(self, name: str, value: Any) -> Any:
        return None if value is None else self.inner.check(name, value)

    def read(self, name: str, text: str) -> Any:
        return None if text.lower() == NONE else self.inner.read(name, text)

    def plain(self, value: Any) -> Any:
        return None if value is None else self.inner.plain(value)

    def code(self, value: Any) -> dict[str, str]:
        return {} if value is None else self.inner.code(value)


@dataclass(frozen=True)
class MemberType(ArgumentType, Generic[Member]):
    """A member of a registry: its name, or an object."""

    members: Registry[Member]

    def check(self, name: str, value: Any) -> Any:
        self.members.member(value)
        return value

    def plain(self, value: Any) -> str:
        return self.members.label(value)

    def code(self, value: Any) -> dict[str, str]:
        return self.members.code(value)


@dataclass(frozen=True)
class ArrayType(ArgumentType):
    """A number or an array of numbers, as float64; NaN and infinity are among them unless all must be finite."""

    finite: bool = True

    wanted = "a number or an array of numbers"

    def check(self, name: str, value: Any) -> Any:
        if type(value) is float and math.isfinite(value):
            return value
        return checks.numbers(name, value) if self.finite else checks.any_numbers(name, value)


@dataclass(frozen=True)
class IdsType(ArgumentType):
    """Ids of tokens."""

    wanted = "ids of tokens"

    def check(self, name: str, value: Any) -> Any:
        return checks.ids(name, value)


@dataclass(frozen=True)
class LengthType(ArgumentType):
    """Values of the option `seq_len`: a whole number of at least 2, or infinity."""

    def check(self, name: str, value: Any) -> float:
        if isinstance(value, float) and value == math.inf:
            return math.inf
        return checks.contextual_length(value) + 1

    def read(self, name: str, text: str) -> float:
        if text.lower() in ("inf", "infinity"):
            return math.inf
        return read_number(name, text, int, "a whole number, or inf for T → ∞")

    def plain(self, value: float) -> float | str:
        return "inf" if math.isinf(value) else value


Values = Annotated[ArrayLike, ArrayType(finite=False)]
Ids = Annotated[ArrayLike, IdsType()]
Seed = Annotated[int, IntegerType({"most": checks.MOST_SEED})]
Length = Annotated[float, LengthType()]


@dataclass(frozen=True)
class PathType(ArgumentType):
    """The path of a file or a folder."""

    wanted = "a path"

    def check(self, name: str, value: Any) -> Any:
        return checks.path(name, value)

    def read(self, name: str, text: str) -> Path:
        return Path(text)


@dataclass(frozen=True)
class InstanceType(ArgumentType):
    """An object of one class.

    Where the class's name says little, a sentence has other words: `words`, or its `in_a_sentence`.
    """

    cls: type
    words: str = ""

    @property
    def wanted(self) -> str:
        return self.words or str(getattr(self.cls, "in_a_sentence", self.cls.__name__))

    def check(self, name: str, value: Any) -> Any:
        if not isinstance(value, self.cls):
            raise InputError(f"{name} is {checks.type_name(value)}: give {self.wanted}.")
        return value


@dataclass(frozen=True)
class CallableType(ArgumentType):
    """A function, or anything that can be called."""

    wanted = "a function"

    def check(self, name: str, value: Any) -> Any:
        if not callable(value):
            raise InputError(f"{name} is {short_repr(value)}: give a function.")
        return value


@dataclass(frozen=True)
class SequenceType(ArgumentType):
    """Several values of one type, or `count` of them; of any type if `inner` is None."""

    inner: ArgumentType | None
    words: str = "values"
    count: int | None = None

    @property
    def wanted(self) -> str:
        each = self.inner.wanted if self.inner else self.words
        return f"a list of {each}" if self.count is None else f"a list of {self.count} values, each {each}"

    def check(self, name: str, value: Any) -> Any:
        if isinstance(value, str | bytes | Mapping) or not checks.is_iterable(value):
            raise InputError(f"{name} is {short_repr(value)}: give {self.wanted}.")
        entries = tuple(value)
        if self.count is not None and len(entries) != self.count:
            raise InputError(f"{name} is {short_repr(value)}: give {self.wanted}.")
        if self.inner is None:
            return entries
        return tuple(self.inner.check(f"{name} entry", entry) for entry in entries)


@dataclass(frozen=True)
class EitherType(ArgumentType):
    """A value of the first of several types that accepts it."""

    types: tuple[ArgumentType, ...]

    @property
    def wanted(self) -> str:
        return " or ".join(each.wanted for each in self.types)

    def check(self, name: str, value: Any) -> Any:
        for each in self.types:
            try:
                return each.check(name, value)
            except InputError:
                continue
        raise InputError(f"{name} is {short_repr(value)}: give {self.wanted}.")


def _unnamed(hint: Any) -> Any:
    """The type that a name stands for (`type Numbers = ...`), which may be a name again."""
    while hasattr(hint, "__value__"):
        hint = hint.__value__
    return hint


def _union_parts(hint: Any) -> list[Any]:
    """The types of which a union is made, also those of unions with a name in it."""
    hint = _unnamed(hint)
    if get_origin(hint) not in (Union, types.UnionType):
        return [hint]
    return [part for member in get_args(hint) for part in _union_parts(member)]


ARRAYS = frozenset(_union_parts(ArrayLike))


def argument_type_of(hint: Any, limits: Mapping[str, Any] = NO_LIMITS) -> ArgumentType | None:
    """The argument type that follows from an annotation, with limits if it is a number; None if any value will do."""
    hint = _unnamed(hint)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next(part for part in hint.__metadata__ if isinstance(part, ArgumentType))
    if origin in (Union, types.UnionType):
        parts = tuple(_union_parts(hint))
        inner = _either([part for part in parts if part is not type(None)], limits)
        return OptionalType(inner) if inner is not None and type(None) in parts else inner
    if origin is Literal:
        return ChoiceType(parts)
    if origin in (Sequence, Collection, Iterable, list) or (origin is tuple and parts[1:] == (...,)):
        return SequenceType(argument_type_of(parts[0]))
    if origin is tuple and len(set(parts)) == 1:
        return SequenceType(argument_type_of(parts[0]), count=len(parts))
    if origin in (Mapping, dict):
        return InstanceType(Mapping)
    if origin is Callable:
        return CallableType()
    simple: dict[Any, ArgumentType | None] = {
        bool: FlagType(),
        str: ArgumentType(),
        int: IntegerType(limits),
        float: NumberType(limits),
        Path: PathType(),
        object: None,
    }
    if hint in simple:
        return simple[hint]
    checkable = isinstance(hint, type) and hint is not Any and getattr(hint, "_is_runtime_protocol", True)
    return InstanceType(hint) if checkable else None


def _either(parts: list[Any], limits: Mapping[str, Any]) -> ArgumentType | None:
    """The argument type of a union; None if one of its parts takes any value."""
    if set(parts) >= ARRAYS:
        return ArrayType()
    if {str, Path} <= set(parts):
        parts = [part for part in parts if part is not str]
    found = [argument_type_of(part, limits) for part in parts]
    return found[0] if len(found) == 1 else None if None in found else EitherType(tuple(filter(None, found)))


def read_number(name: str, text: str, number: Callable[[str], Number], wanted: str) -> Number:
    """The number that a text spells."""
    return read_numbers(name, text, number, wanted, separator=None)[0]


def read_numbers(
    name: str, text: str, number: Callable[[str], Number], wanted: str, separator: str | None = ","
) -> list[Number]:
    """The numbers that a text lists."""
    try:
        return [number(part) for part in (text.split(separator) if separator else [text])]
    except ValueError:
        raise InputError(f"{name} is '{text}': give {wanted}.") from None
