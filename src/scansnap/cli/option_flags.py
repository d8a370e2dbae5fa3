"""Flags of the command line, derived from options."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from inspect import get_annotations
from types import MappingProxyType
from typing import Any

from scansnap.cli.flags import OptionFlag, Word, flag_name
from scansnap.validation.argument_types import NONE, ChoiceType, FlagType, IntegerType, NumberType, OptionalType
from scansnap.validation.options import Option, Options, defaults_of, options_of


def option_flags(
    *classes: type[Options],
    several: bool = False,
    leave_out: Collection[str] = (),
    defaults: bool = False,
    variants: Mapping[str, type[Options]] = MappingProxyType({}),
) -> list[OptionFlag]:
    """A flag for every option of these classes.

    With `several` a flag takes values separated by commas; with `defaults` the help shows the options' own, and where
    they differ those of the named `variants`.
    """
    return [
        _option_flag(
            name,
            option,
            title=_section(cls, name),
            default=_default(cls, name, option, variants) if defaults else "",
            several=several,
        )
        for cls in classes
        for name, option in options_of(cls).items()
        if name not in leave_out
    ]


def select_options(cls: type[Options], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Of the values that flags gave, those of the options of a class."""
    return {name: value for name, value in flags.items() if name in options_of(cls)}


def _option_flag(name: str, option: Option, *, title: str, default: str, several: bool) -> OptionFlag:
    """The flag of an option, which the options check when they are made."""
    flag = flag_name(name)
    text = option.shell
    if several and option.axis and option.separator not in ("", ","):
        text += f" Separate several values with {option.separator}"
    text += f"  [default: {default}]" if default else ""
    if isinstance(option.type, FlagType) and not several:
        return OptionFlag([f"{flag}/--no-{flag[2:]}"], default=None, help=text, title=title)
    separator = option.separator if several and option.axis else ""

    def read(flag: str, word: str) -> Any:
        values = [option.type.read(flag, part.strip()) for part in (word.split(separator) if separator else [word])]
        return values[0] if len(values) == 1 else values

    form = form_of(option) + (f"{separator}..." if separator else "")
    return OptionFlag([flag], type=Word(form, read), metavar=form, help=text, title=title)


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


def form_of(option: Option) -> str:
    """The form of a value in help, as `<int>`."""
    expected = option.type.inner if isinstance(option.type, OptionalType) else option.type
    forms = {IntegerType: "<int>", NumberType: "<float>", FlagType: "yes|no"}
    return "|".join(expected.names) if isinstance(expected, ChoiceType) else forms.get(type(expected), "<str>")


def _section(cls: type[Options], name: str) -> str:
    """The concept that an option belongs to: how the class that states it is described, up to a sign."""
    owner = next(base for base in reversed(cls.__mro__) if name in get_annotations(base))
    return re.split("[:;.]", owner.__doc__ or "Options")[0]
