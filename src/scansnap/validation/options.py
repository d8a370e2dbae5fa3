"""Options, each stated once, and functions that take them as keyword arguments.

An option is a field of a frozen dataclass: its type and, in `option(...)`, its meaning, its default, and how its value
is checked and read.  Signatures and their documentation, flags of the command line, keys of TOML files, axes of sweeps
and the attributes of results are derived from the field.  Where something is written differently in a shell and in
Python, the meaning has both: "a list such as <1,10|[1, 10]> makes several runs".

    @options
    class MyOptions(Options):
        steps: int = option("Updates.", least=0)
        device: Literal["cpu", "cuda"] = option("Where to compute.", default="cpu")

Values are checked when the object is made, so any object that exists is usable.  A subclass that only changes a default
states the type and the default.

`options_as_kwargs` decorates a function that takes its options by name: `train(classes, lr_y=1.0, lr_z=1.0, steps=9)`,
or `train(classes, **vars(options))`.  Type checkers see the constructor of a class with the same fields; `help` and the
documentation see a signature and a docstring that are derived from the options.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import (
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_type_hints,
    overload,
)

from scansnap.runtime.errors import InputError, unknown
from scansnap.validation.argument_types import (
    NONE,
    ArgumentType,
    FlagType,
    InstanceType,
    OptionalType,
    PathType,
    argument_type_of,
)

DIFFERS = re.compile(r"<([^<>|]*)\|([^<>]*)>")


@dataclass(frozen=True)
class Option:
    """What a field states besides its type and its default."""

    meaning: str  # with what differs between shell and Python as <shell|Python>
    type: ArgumentType
    axis: bool  # whether a sweep may take several values
    separator: str  # between several values on the command line; empty if one value is itself a list
    listed: bool  # whether a list of numbers, or of arrays, is one value

    @property
    def shell(self) -> str:
        """What the option means, for the command line."""
        return DIFFERS.sub(r"\1", self.meaning)

    @property
    def python(self) -> str:
        """What the option means, for Python."""
        return DIFFERS.sub(r"\2", self.meaning)


def option(
    meaning: str,
    type: ArgumentType | None = None,
    *,
    default: Any = MISSING,
    axis: bool = True,
    separator: str = ",",
    listed: bool = False,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    none: str = "",
) -> Any:
    """A field that is an option.

    By default `type` follows from the field's type: numbers (within the limits), True and False, or the names of a
    `Literal`.  `none` says what None means, if the type allows it.  The rest is as in `Option`.
    """
    limits = {name: limit for name, limit in (("least", least), ("most", most), ("below", below)) if limit is not None}
    if none:
        meaning = f"{meaning.removesuffix('.')}; <none|None> {none}."
    metadata = {"type": type, "limits": limits, "make": lambda type: Option(meaning, type, axis, separator, listed)}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one function: a dataclass whose fields are made with `option`."""

    def __post_init__(self) -> None:
        for name, stated in options_of(type(self)).items():
            object.__setattr__(self, name, stated.type.check(name, getattr(self, name)))
        self.check_together()

    def check_together(self) -> None:
        """Refuse values that contradict each other."""

    def to_dict(self) -> dict[str, Any]:
        """Every option as plain data, and digests of the user's code that they hold, if any, under "code"."""
        stated = options_of(type(self))
        plain = {name: option.type.plain(getattr(self, name)) for name, option in stated.items()}
        code = {
            part: digest
            for name, option in stated.items()
            for part, digest in option.type.code(getattr(self, name)).items()
        }
        return {**plain, "code": code} if code else plain

    @classmethod
    def of(cls, other: Options, **more: Any) -> Self:
        """These options with values taken from `other` where it has them, and from `more`."""
        shared = {name: getattr(other, name) for name in options_of(cls) if name in options_of(type(other))}
        return cls(**{**shared, **more})


Part = TypeVar("Part", bound=Options)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
def options(cls: type[Part]) -> type[Part]:
    """A decorator for a class whose fields are made with `option`: a frozen dataclass."""
    return dataclass(frozen=True, kw_only=True)(cls)


_OPTIONS_BY_CLASS: dict[type[Options], dict[str, Option]] = {}


def options_of(cls: type[Options]) -> dict[str, Option]:
    """The options of a class by name, in the order of their statement."""
    if cls not in _OPTIONS_BY_CLASS:
        hints = get_type_hints(cls)
        _OPTIONS_BY_CLASS[cls] = {
            field.name: _option(_field_with_metadata(cls, field), hints[field.name]) for field in fields(cls)
        }
    return _OPTIONS_BY_CLASS[cls]


def _field_with_metadata(cls: type[Options], field: Field[Any]) -> Field[Any]:
    """The field with the metadata of this option, where a subclass gave it another default only."""
    versions = (vars(base).get("__dataclass_fields__", {}).get(field.name) for base in cls.__mro__)
    return next((version for version in versions if version is not None and version.metadata), field)


def values_of(options: Options) -> dict[str, Any]:
    """The values of options by name."""
    return {name: getattr(options, name) for name in options_of(type(options))}


def defaults_of(cls: type[Options]) -> dict[str, Any]:
    """The options that have a default, with their defaults."""
    return {field.name: field.default for field in fields(cls) if field.default is not MISSING}


def required_of(cls: type[Options]) -> list[str]:
    """The options that have no default."""
    return [field.name for field in fields(cls) if field.default is MISSING]


def from_names(cls: type[Part], values: Mapping[str, Any]) -> Part:
    """Options from the names in a file or a call; an unknown or missing name raises an `InputError`."""
    for name in values:
        if name not in options_of(cls):
            raise unknown("option", name, options_of(cls))
    missing = [name for name in required_of(cls) if name not in values]
    if missing:
        raise InputError(f"{', '.join(missing)} must be given.")
    return cls(**values)


def _option(field: Field[Any], hint: Any) -> Option:
    stated = field.metadata or option(field.name.replace("_", " ").capitalize() + ".").metadata
    argument_type = stated["type"] or argument_type_of(hint, stated["limits"])
    if argument_type is None or isinstance(argument_type, InstanceType):
        raise TypeError(
            f"the type of the option {field.name} does not say how it is checked: give option(..., type=...)"
        )
    if stated["type"] and types.NoneType in get_args(hint):
        argument_type = OptionalType(argument_type)
    made: Option = stated["make"](argument_type)
    return made


def plain(value: Any) -> Any:
    """A value in TOML form: None becomes a word, tuples become lists."""
    if value is None:
        return NONE
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def from_plain(value: Any) -> Any:
    """The inverse of `plain`."""
    if isinstance(value, Mapping):
        return {key: from_plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [from_plain(inner) for inner in value]
    return None if isinstance(value, str) and value.lower() == NONE else value


# --- functions of options ---------------------------------------------------------------------------------------------


P = ParamSpec("P")
First = TypeVar("First", contravariant=True)
Result = TypeVar("Result", covariant=True)
Function = TypeVar("Function", bound=Callable[..., Any])


@options
class RunArguments(Options):
    """What a function that computes runs takes besides options; no number depends on it."""

    store: str | Path | None = option(
        "Write the result there while it is computed.  If the call is interrupted, the same call resumes and gives "
        "identical numbers.  A finished result is read and not computed again.",
        PathType(),
        default=None,
    )
    progress: bool | None = option(
        "Show a progress bar, or nothing if false; by default a bar on a terminal, elsewhere an occasional line.",
        FlagType(),
        default=None,
    )


def describe_options(function: Callable[..., object], *classes: type[Options]) -> None:
    """Give a function the signature of options in place of `**kwargs`, and their meanings in place of `{options}`."""
    own = inspect.signature(function)
    parameters = [parameter for parameter in own.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    first = [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    options, lines = [], []
    for cls in classes:
        for each in fields(cls):
            default = inspect.Parameter.empty if each.default is MISSING else each.default
            lines += [f"{each.name} : {each.type}", f"    {options_of(cls)[each.name].python}"]
            if each.name not in own.parameters:
                kind = inspect.Parameter.KEYWORD_ONLY
                options.append(inspect.Parameter(each.name, kind, default=default, annotation=each.type))
    last = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    function.__signature__ = own.replace(parameters=[*first, *options, *last])  # type: ignore[attr-defined]
    function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("{options}", "\n".join(lines))


def refuse_options_object(function: Function) -> Function:
    """A decorator that refuses an options object among the positional arguments."""

    @functools.wraps(function)
    def check(*arguments: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, Options) for value in arguments[1:]):
            raise InputError(f"{function.__name__} takes options by name: give **vars(options) in place of the object.")
        return function(*arguments, **kwargs)

    return cast(Function, check)


class TakesOptions(Protocol[First, P, Result]):
    """A function of some data and options."""

    @overload
    def __call__(self, data: First, /, *args: P.args, **options: P.kwargs) -> Result: ...

    @overload
    def __call__(self, data: Options, /, **options: Any) -> Result: ...  # a system has options of its own


def options_as_kwargs(
    call: Callable[P, object], *classes: type[Options]
) -> Callable[[Callable[Concatenate[First, ...], Result]], TakesOptions[First, P, Result]]:
    """A decorator for a function that takes options as `**kwargs`.

    `call` is a class with the fields of all `classes` and the function's own keywords, for type checkers.
    """

    def decorate(function: Callable[Concatenate[First, ...], Result]) -> TakesOptions[First, P, Result]:
        checked = refuse_options_object(function)
        describe_options(checked, *classes)
        return cast("TakesOptions[First, P, Result]", checked)

    return decorate
