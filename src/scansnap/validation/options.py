"""Options, each stated once, and functions that take them as keyword arguments.

An option is a field of a frozen dataclass: its type, its default and, in `option(...)`, what it means and how its value
is checked and read.  Signatures and their documentation, flags of the command line, keys of TOML files, axes of sweeps
and the attributes of results are derived from the field.  Where something is written differently in a shell and in
Python, the meaning has both: "a list such as <1,10|[1, 10]> makes several runs".

    @dataclass(frozen=True, kw_only=True)
    class MyOptions(Options):
        steps: int = field(metadata=option("Updates.", least=0))
        device: Literal["cpu", "cuda"] = field(default="cpu", metadata=option("Where to compute."))

Values are checked when the object is made, so any object that exists is usable.  A subclass that only changes a default
states the type and the default.

    train(classes, lr_y=1.0, lr_z=1.0, steps=100, store="run.zarr")
    train(classes, options, store="run.zarr")

`options_or_kwargs` makes a function that takes its options in both forms, `options_as_kwargs` one that takes them by
name.  Type checkers see the constructor of a class with the same fields; `help` and the documentation see a signature
and a docstring that are derived from the options.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
    overload,
)

from scansnap.runtime.errors import InputError, unknown
from scansnap.validation.argument_types import NONE, ArgumentType, InstanceType, OptionalType, argument_type_of
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    import xarray as xr

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
    axis: bool = True,
    separator: str = ",",
    listed: bool = False,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    none: str = "",
) -> dict[str, Any]:
    """The metadata of a field that is an option.

    By default `type` follows from the field's type: numbers (within the limits), True and False, or the names of a
    `Literal`.  `none` says what None means, if the type allows it.  The rest is as in `Option`.
    """
    limits = {name: limit for name, limit in (("least", least), ("most", most), ("below", below)) if limit is not None}
    if none:
        meaning = f"{meaning.removesuffix('.')}; <none|None> {none}."
    return {"type": type, "limits": limits, "make": lambda type: Option(meaning, type, axis, separator, listed)}


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


_STATED: dict[type[Options], dict[str, Option]] = {}


def options_of(cls: type[Options]) -> dict[str, Option]:
    """The options of a class by name, in the order of their statement."""
    if cls not in _STATED:
        hints = get_type_hints(cls)
        _STATED[cls] = {field.name: _option(_stated(cls, field), hints[field.name]) for field in fields(cls)}
    return _STATED[cls]


def _stated(cls: type[Options], field: Field[Any]) -> Field[Any]:
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
    stated = field.metadata or option(field.name.replace("_", " ").capitalize() + ".")
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
First = TypeVar("First")
Result = TypeVar("Result")
Data = TypeVar("Data", contravariant=True)
OptionsType = TypeVar("OptionsType", bound=Options, contravariant=True)

CALL_DOCUMENTATION = """\
store : path, optional
    Write the result there while it is computed.  If the call is interrupted, the same call resumes and gives
    identical numbers.  A finished result is read and not computed again.
progress : bool, optional
    Show a progress bar, or nothing if false; by default a bar on a terminal, and elsewhere an occasional line."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The keyword arguments of a call besides its options; they cannot change any number."""

    store: str | Path | None = None
    progress: bool | None = None


def describe_options(function: Callable[..., object], *classes: type[Options], more: str = "") -> None:
    """Give a function the signature of options in place of `**kwargs`, and their meanings in place of `{options}`.

    `more` documents further parameters.
    """
    own = inspect.signature(function)
    parameters = [parameter for parameter in own.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    first = [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    options, lines = [], []
    for cls in classes:
        for field in fields(cls):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            options.append(
                inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
            )
            lines += [f"{field.name} : {field.type}", f"    {options_of(cls)[field.name].python}"]
    last = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    function.__signature__ = own.replace(parameters=[*first, *options, *last])  # type: ignore[attr-defined]
    text = "\n".join([*lines, more]).rstrip()
    function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("{options}", text)


def options_as_kwargs(
    call: Callable[P, object], *classes: type[Options]
) -> Callable[[Callable[Concatenate[First, ...], Result]], Callable[Concatenate[First, P], Result]]:
    """A decorator for a function that takes options as `**kwargs`.

    `call` is a class with the fields of all `classes` and the function's own keywords, for type checkers.
    """

    def decorate(function: Callable[Concatenate[First, ...], Result]) -> Callable[Concatenate[First, P], Result]:
        describe_options(function, *classes)
        return function

    return decorate


class TakesOptions(Protocol, Generic[Data, OptionsType, P]):
    """A function of some data and options."""

    @overload
    def __call__(
        self, data: Data, options: OptionsType, /, *, store: str | Path | None = None, progress: bool | None = None
    ) -> xr.Dataset: ...

    @overload
    def __call__(self, data: Options, options: Options | None = None, /, **kwargs: Any) -> xr.Dataset: ...

    @overload
    def __call__(self, data: Data, /, *args: P.args, **options: P.kwargs) -> xr.Dataset: ...


def options_or_kwargs(
    options_class: type[OptionsType],
    call: Callable[P, Call],
    *,
    named: type[Options] | None = None,
    read: Callable[[Mapping[str, Any]], OptionsType] | None = None,
    choose: Callable[[object], type[Options]] | None = None,
) -> Callable[
    [Callable[[Data, OptionsType, str | Path | None, bool | None], xr.Dataset]], TakesOptions[Data, OptionsType, P]
]:
    """A decorator that lets a function of (data, options, store, progress) take options as an object or by name.

    `call` is a class with the fields of `options_class` and of `Call`, for type checkers.  Where an option decides
    between subclasses of `options_class`, `named` has the options of all of them, and `read` makes one of them from
    names and values.  Where the data decide, `choose` gives the class for them.
    """

    def decorate(
        function: Callable[[Data, OptionsType, str | Path | None, bool | None], xr.Dataset],
    ) -> TakesOptions[Data, OptionsType, P]:
        checked = validated(function)
        first = next(iter(inspect.signature(function).parameters.values()))

        @functools.wraps(checked)
        def run(data: Any = MISSING, options: Any = None, /, **kwargs: Any) -> xr.Dataset:
            if data is MISSING and first.name not in kwargs:
                raise InputError(f"{first.name} must be given.")
            data = kwargs.pop(first.name) if data is MISSING else data
            own = {field.name: kwargs.pop(field.name, field.default) for field in fields(Call)}
            wanted = options_class if choose is None else choose(data)
            if options is None and (kwargs or not required_of(wanted)):
                options = read(kwargs) if read is not None else from_names(wanted, kwargs)
            elif not isinstance(options, wanted):
                what = "missing" if options is None else type(options).__name__
                raise InputError(f"options is {what}: give {wanted.__name__}, or every option by its name.")
            elif kwargs:
                raise InputError(
                    f"{', '.join(kwargs)} is given beside {wanted.__name__}: change the options with "
                    "dataclasses.replace."
                )
            return checked(data, options, own["store"], own["progress"])

        parameters = [first, *inspect.signature(Call).parameters.values()]
        run.__signature__ = inspect.Signature(parameters, return_annotation="xr.Dataset")  # type: ignore[attr-defined]
        describe_options(run, named or options_class, more=CALL_DOCUMENTATION)
        return cast("TakesOptions[Data, OptionsType, P]", run)

    return decorate
