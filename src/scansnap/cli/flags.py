"""Flags of the command line, derived from options."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from inspect import get_annotations
from types import MappingProxyType
from typing import Annotated, Any

import typer

from scansnap.validation.argument_types import NONE, ChoiceType, FlagType, IntegerType, NumberType, OptionalType
from scansnap.validation.options import Option, Options, defaults_of, options_of

Flag = str | bool | None


def with_flags(
    *classes: type[Options],
    several: bool = False,
    leave_out: Collection[str] = (),
    defaults: bool = False,
    variants: Mapping[str, type[Options]] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that replaces a command's `**flags` with a flag for every option.

    With `several` a flag takes values separated by commas; with `defaults` the help shows the options' own, and where
    they differ those of the named `variants`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**kwargs: Any) -> None:
            command(**kwargs)

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "flags"]
        first = [p for p in own if p.name in ("preset", "config", "classes", "source", "text")]
        derived = [
            _parameter(
                cls,
                name,
                option,
                several=several,
                shown=_default(cls, name, option, variants) if defaults else "",
            )
            for cls in classes
            for name, option in options_of(cls).items()
            if name not in leave_out
        ]
        ordered = [*first, *derived, *(p for p in own if p not in first)]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in ordered]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def flag_name(option: str) -> str:
    """The flag of an option: --batch-size for batch_size."""
    return "--" + option.replace("_", "-")


def _parameter(cls: type[Options], name: str, option: Option, *, several: bool, shown: str) -> inspect.Parameter:
    flag = flag_name(name)
    is_switch = isinstance(option.type, FlagType) and not several
    names = [f"{flag}/--no-{flag[2:]}"] if is_switch else [flag]
    help_text = option.shell
    if several and option.axis and option.separator not in (None, "", ","):
        help_text += f" Separate several values with {option.separator}"
    if shown:
        help_text += f"  [default: {shown}]"
    declared = typer.Option(
        *names,
        help=help_text,
        metavar=None if is_switch else form_of(option, several=several and option.axis),
        show_default=False,
        rich_help_panel=_panel(cls, name),
    )
    value_type = bool | None if is_switch else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[value_type, declared]
    )


def _default(cls: type[Options], name: str, option: Option, variants: Mapping[str, type[Options]]) -> str:
    """The default of an option in words, and those of variants that have another; empty if it says nothing."""
    default = defaults_of(cls).get(name, "")
    if default is None:
        return NONE if f"<{NONE}|" in option.meaning else ""  # where the help says what none means
    if isinstance(default, bool):
        flag = name.replace("_", "-")
        yes, no = (flag, f"no-{flag}") if isinstance(option.type, FlagType) else ("yes", "no")
        return yes if default else no
    if isinstance(default, tuple):
        return ",".join(default)
    if callable(default):
        return ""
    others = {variant: defaults_of(options).get(name, default) for variant, options in variants.items()}
    return "; ".join(
        [str(default), *(f"{variant}: {other}" for variant, other in others.items() if other not in (default, variant))]
    )


def form_of(option: Option, *, several: bool = False) -> str:
    """The form of a value in help, as `<int>,...`."""
    expected = option.type.inner if isinstance(option.type, OptionalType) else option.type
    forms = {IntegerType: "<int>", NumberType: "<float>", FlagType: "yes|no"}
    form = "|".join(expected.names) if isinstance(expected, ChoiceType) else forms.get(type(expected), "<str>")
    return f"{form}{option.separator}..." if several and option.separator else form


def _panel(cls: type[Options], name: str) -> str:
    """The concept that an option belongs to: how the class that states it is described, up to a sign."""
    owner = next(base for base in reversed(cls.__mro__) if name in get_annotations(base))
    return re.split("[:;.]", owner.__doc__ or "Options")[0]


def read_flags(flags: Mapping[str, Flag], *classes: type[Options], several: bool = False) -> dict[str, Any]:
    """The options set by flags, not yet checked."""
    given: dict[str, Any] = {}
    for cls in classes:
        for name, option in options_of(cls).items():
            value = flags.get(name)
            if value is None:
                continue
            flag = flag_name(name)
            if isinstance(value, bool):
                given[name] = value
            elif several and option.axis and option.separator:
                values = [option.type.read(flag, part.strip()) for part in value.split(option.separator)]
                given[name] = values[0] if len(values) == 1 else values
            else:
                given[name] = option.type.read(flag, value.strip())
    return given
