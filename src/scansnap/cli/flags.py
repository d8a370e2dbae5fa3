"""Flags of the command line, derived from options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from scansnap.base.errors import ScanSnapError
from scansnap.base.kinds import ChoiceKind, FlagKind, NumberKind, OptionalKind, WholeKind
from scansnap.base.options import Option, Options, options_of

Flag = str | bool | None


def with_flags(
    *classes: type[Options], several: bool = False, leave_out: Collection[str] = (), defaults: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that replaces a command's `**flags` with a flag for every option.

    With `several` a flag takes values separated by commas; with `defaults` the help shows the options' own.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**words: Any) -> None:
            try:
                command(**words)
            except KeyboardInterrupt:
                raise ScanSnapError(
                    "stopped; start the same command again to continue from its last checkpoint."
                ) from None

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "flags"]
        first = [p for p in own if p.name in ("preset", "config", "classes", "text")]
        stated = [
            _parameter(cls, name, option, several=several, defaults=defaults)
            for cls in classes
            for name, option in options_of(cls).items()
            if name not in leave_out
        ]
        ordered = [*first, *stated, *(p for p in own if p not in first)]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in ordered]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _parameter(cls: type[Options], name: str, option: Option, *, several: bool, defaults: bool) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    is_switch = isinstance(option.kind, FlagKind) and not several
    names = [f"{flag}/--no-{flag[2:]}"] if is_switch else [flag]
    help_text = option.help
    if several and option.axis and option.separator:
        help_text += f" Separate several values with {option.separator}."
    default = next(field.default for field in fields(cls) if field.name == name)
    info = typer.Option(
        *names,
        help=help_text,
        metavar=None if is_switch else _metavar(option, several=several and option.axis),
        show_default=str(default) if defaults and default is not None and not callable(default) else False,
        rich_help_panel=_panel(cls, name),
    )
    kind = bool | None if is_switch else str | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info])


def _metavar(option: Option, *, several: bool) -> str:
    kind = option.kind.inner if isinstance(option.kind, OptionalKind) else option.kind
    words = {WholeKind: "INTEGER", NumberKind: "NUMBER", FlagKind: "yes|no"}
    word = "|".join(kind.names) if isinstance(kind, ChoiceKind) else words.get(type(kind), "TEXT")
    return f"{word}{option.separator}..." if several and option.separator else word


def _panel(cls: type[Options], name: str) -> str:
    """The concept that an option belongs to: the first sentence of the class that states it."""
    owner = next(base for base in reversed(cls.__mro__) if name in vars(base).get("__annotations__", {}))
    return (owner.__doc__ or "Options").strip().splitlines()[0].rstrip(".:")


def read_flags(flags: Mapping[str, Flag], *classes: type[Options], several: bool = False) -> dict[str, Any]:
    """The options set by flags, not yet checked."""
    words: dict[str, Any] = {}
    for cls in classes:
        for name, option in options_of(cls).items():
            value = flags.get(name)
            if value is None:
                continue
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                words[name] = value
            elif several and option.axis and option.separator:
                values = [option.kind.read(flag, part.strip()) for part in value.split(option.separator)]
                words[name] = values[0] if len(values) == 1 else values
            else:
                words[name] = option.kind.read(flag, value.strip())
    return words
