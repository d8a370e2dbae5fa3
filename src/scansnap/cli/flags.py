"""Commands made from functions: their flags follow from the annotations of parameters.

    @command(OVERWRITE_FLAG, *option_flags(TrainOptions))
    def train(
        preset: Annotated[str | None, Flag("A published setting.")] = None,
        json: Annotated[bool, JSON] = False,
        **flags: Any,
    ) -> None:

A parameter's type says how its flag is read.  Flags of options (`option_flags.py`) follow, and `**flags` gets those
that are given.  All words are read by argument types (`validation/argument_types.py`): click calls them by `Word`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

FORMS: dict[type, str] = {str: "<str>", int: "<int>", float: "<float>", Path: "<path>"}
"""How help writes a value of each type."""

HYPHEN = "\N{NON-BREAKING HYPHEN}"
"""Replaces the hyphen while lines are broken, so that names of options stay in one piece."""


@dataclass(frozen=True)
class Flag:
    """What a flag means besides the type of its parameter."""

    meaning: str
    name: str = ""  # by default that of the parameter: --by-rate for by_rate
    least: int | None = None


@dataclass(frozen=True)
class Argument:
    """What a word without a flag means."""

    meaning: str
    metavar: str | None = None  # by default the parameter's name in capitals


class Word(click.ParamType[Any]):
    """A word of the command line: `read` gets the name of its flag and the word."""

    def __init__(self, form: str, read: Callable[[str, str], Any]) -> None:
        self.name = form
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default
            return value
        return self.read(param.opts[0] if param else self.name, value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        if "|" in self.name:
            return [CompletionItem(name) for name in self.name.split("|") if name.startswith(incomplete)]
        return [CompletionItem(incomplete, type="file")]


class HelpFormatter(click.HelpFormatter):
    """Help with bold headings and colored names, in which no line ends within the name of an option."""

    def write_heading(self, heading: str) -> None:
        super().write_heading(click.style(heading, bold=True))

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", HYPHEN))

    def write_dl(self, rows: Any, *args: Any, **kwargs: Any) -> None:
        colored = [(click.style(name, fg="cyan"), text.replace("-", HYPHEN)) for name, text in rows]
        super().write_dl(colored, *args, **kwargs)

    def getvalue(self) -> str:
        return super().getvalue().replace(HYPHEN, "-")


class HelpContext(click.Context):
    """A context that formats help with `HelpFormatter`."""

    formatter_class = HelpFormatter


class OptionFlag(click.Option):
    """The flag of an option, with the title of its section in help."""

    def __init__(self, *args: Any, title: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.title = title


class SectionedCommand(click.Command):
    """A command whose help groups its flags by concept."""

    context_class = HelpContext

    def __init__(self, *args: Any, listed: Mapping[str, Mapping[str, str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.listed = listed

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Names and help texts by section: arguments first, then flags, and last what the command lists."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            is_argument = isinstance(parameter, click.Argument)
            if record is not None:
                title = "Arguments" if is_argument else getattr(parameter, "title", "Options")
                entry = (f"{record[0]} {parameter.type.name}", record[1]) if is_argument else record
                sections.setdefault(title, []).append(entry)
        return {**sections, **{title: list(entries.items()) for title, entries in self.listed.items()}}

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave arguments to `format_options`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(entries)


def command(
    *flags: click.Option, listed: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Callable[[Callable[..., None]], SectionedCommand]:
    """A decorator that makes a command of a function, with flags for its parameters and these `flags`.

    Help ends with the sections `listed`, such as the names of presets.
    """

    def decorate(function: Callable[..., None]) -> SectionedCommand:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        own = [_own_parameter(parameter) for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
        names = [flag.name for flag in flags]

        def run(**values: Any) -> None:
            source = click.get_current_context().get_parameter_source
            is_given = {name: source(name) is click.ParameterSource.COMMANDLINE for name in names}
            function(**{name: value for name, value in values.items() if is_given.get(name, True)})

        text = inspect.getdoc(function)
        return SectionedCommand(function.__name__, callback=run, params=[*own, *flags], help=text, listed=listed)

    return decorate


def flag_name(option: str) -> str:
    """The flag of an option: --batch-size for batch_size."""
    return "--" + option.replace("_", "-")


# --- parameters of functions ------------------------------------------------------------------------------------------


def _own_parameter(parameter: inspect.Parameter) -> click.Parameter:
    """The flag, or the argument, of a parameter; it may be repeated if its type is a tuple."""
    hint, stated = get_args(parameter.annotation)
    is_repeated = get_origin(hint) is tuple
    single = next(part for part in (*get_args(hint), hint) if part not in (NoneType, Ellipsis))
    settings: dict[str, Any] = {"help": stated.meaning}
    if parameter.default is not parameter.empty:
        settings["default"] = parameter.default
    if isinstance(stated, Argument):
        nargs = -1 if is_repeated else 1
        return click.Argument([parameter.name], type=word_of(single), nargs=nargs, metavar=stated.metavar, **settings)
    names = [stated.name or flag_name(parameter.name), parameter.name]
    if single is bool:
        return click.Option(names, is_flag=True, **settings)
    return click.Option(
        names,
        type=word_of(single, stated.least),
        multiple=is_repeated,
        required="default" not in settings,
        show_default=True,
        metavar=FORMS[single],
        **settings,
    )


def word_of(hint: type, least: int | None = None) -> Word:
    """The words for values of a type."""

    def read(flag: str, word: str) -> Any:
        from scansnap.validation.argument_types import argument_type_of

        argument_type = argument_type_of(hint, {} if least is None else {"least": least})
        assert argument_type is not None
        return argument_type.check(flag, argument_type.read(flag, word))

    return Word(FORMS[hint], read)


def eager_flag(name: str, meaning: str, act: Callable[[Any], object], **settings: Any) -> click.Option:
    """A flag that is read before others, and calls a function with its value; the command does not get it."""

    def call(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value not in (None, False) and not ctx.resilient_parsing:  # as when a shell completes words
            act(value)

    return click.Option([name], is_eager=True, expose_value=False, callback=call, help=meaning, **settings)
