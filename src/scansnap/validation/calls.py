"""Functions whose options are keyword arguments, with the signature and the documentation of their options.

    train(classes, lr_y=1.0, lr_z=1.0, steps=100, store="run.zarr")
    train(classes, options, store="run.zarr")

`options_or_kwargs` makes a function that takes its options in both forms, `options_as_kwargs` one that takes them by
name.  Type checkers see the constructor of a class with the same fields; `help` and the documentation see a signature
and a docstring that are derived from the options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from scansnap.runtime.errors import InputError
from scansnap.validation.options import Options, from_names, options_of, required_of
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    import xarray as xr

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
