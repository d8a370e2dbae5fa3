"""Calls that take their options as one object, or flat as keywords.

    train(classes, options, store="run.zarr")
    train(classes, lr_y=1.0, lr_z=1.0, steps=100, store="run.zarr")

The flat form is derived from the options' class: the type checker sees its constructor; `help` and the documentation
see the signature and the docstring.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from scansnap.runtime.errors import InputError
from scansnap.validation.options import Options, documented, from_names, required_of, signature
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    import xarray as xr

P = ParamSpec("P")
Subject = TypeVar("Subject", contravariant=True)
Chosen = TypeVar("Chosen", bound=Options, contravariant=True)


@dataclass(frozen=True, kw_only=True)
class Call:
    """How a call is carried out; this cannot change any number."""

    store: str | Path | None = None
    progress: bool | None = None


STORE = """\
store : path, optional
    Write the result there during the work.  Interrupted work continues from there to identical numbers; a finished
    result is read, not computed again.
progress : bool, optional
    Show a progress bar, or nothing if false; by default a bar on a terminal, and elsewhere a line now and then."""


class Verb(Protocol, Generic[Subject, Chosen, P]):
    """A function of some data and options."""

    @overload
    def __call__(
        self, data: Subject, options: Chosen, /, *, store: str | Path | None = None, progress: bool | None = None
    ) -> xr.Dataset: ...

    @overload
    def __call__(self, data: Subject, /, *args: P.args, **options: P.kwargs) -> xr.Dataset: ...


def verb(
    options_class: type[Chosen],
    call: Callable[P, Call],
    *,
    named: type[Options] | None = None,
    read: Callable[[Mapping[str, Any]], Chosen] | None = None,
) -> Callable[[Callable[[Subject, Chosen, str | Path | None, bool | None], xr.Dataset]], Verb[Subject, Chosen, P]]:
    """A decorator that lets a function of (data, options, store, progress) be called in both forms.

    `call` is a class with the fields of `options_class` and of `Call`: its constructor is the flat form's signature.
    Where an option decides between subclasses of `options_class`, `named` has the options of all of them, and `read`
    turns names and values into one of them.
    """
    listed = named or options_class
    made_of: Callable[[Mapping[str, Any]], Chosen] = read or functools.partial(from_names, options_class)

    def decorate(
        function: Callable[[Subject, Chosen, str | Path | None, bool | None], xr.Dataset],
    ) -> Verb[Subject, Chosen, P]:
        checked = validated(function)

        @functools.wraps(checked)
        def flat(data: Any, options: Any = None, /, **words: Any) -> xr.Dataset:
            how = {field.name: words.pop(field.name, field.default) for field in fields(Call)}
            if options is None and (words or not required_of(options_class)):
                options = made_of(words)
            elif not isinstance(options, options_class):
                what = "missing" if options is None else type(options).__name__
                raise InputError(f"options is {what}: give {options_class.__name__}, or every option by its name.")
            elif words:
                raise InputError(
                    f"{', '.join(words)} is given beside {options_class.__name__}: change the options with "
                    "dataclasses.replace."
                )
            return checked(data, options, how["store"], how["progress"])

        first = next(iter(inspect.signature(function).parameters.values()))
        own = inspect.Signature([first, *inspect.signature(Call).parameters.values()], return_annotation="xr.Dataset")
        flat.__signature__ = signature(own, listed)  # type: ignore[attr-defined]
        flat.__doc__ = documented(function.__doc__ or "", listed, STORE)
        return cast("Verb[Subject, Chosen, P]", flat)

    return decorate
