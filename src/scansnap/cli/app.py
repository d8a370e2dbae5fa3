"""The program `scansnap`: one command per verb of the library.

A command's module is imported when the command is called or its help is asked for; lists of commands show the first
sentence of each docstring, read without importing.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from scansnap.cli.console import Stopped, echo, papers_left_out_in_one_line, stopping_on_signals
from scansnap.runtime.errors import ScanSnapError
from scansnap.runtime.machine import let_waiting_threads_sleep, needs_torch

COMMANDS = {
    "train": "train:train",
    "flow": "train:flow",
    "sweep": "sweep:sweep",
    "verify": "verify:verify",
    "systems": "system:systems",
    "figure": "figure:figure",
    "explore": "train:explore",
    "reproduce": "figure:reproduce",
    "check": "common:check",
}
"""The `module:function` of each command."""

GROUPS = {
    "text": (
        "Train transformers on text and follow their attention; make sequence classes of a text.",
        {"train": "text:train", "show": "text:show", "classes": "text:classes"},
    ),
    "watch": (
        "Watch the attention of models while they train.",
        {"show": "watch:show", "checkpoints": "watch:checkpoints", "compare": "watch:compare"},
    ),
}
"""Commands of two words: the help of the group, and the `module:function` of each command."""

WIDTH = 100
"""The largest number of characters in a line of help."""

HYPHEN = "\N{NON-BREAKING HYPHEN}"
"""Replaces the hyphen while lines are broken, so that names of options stay in one piece."""

WRITTEN = {"picture", "page"}
"""Options that name files to write: commands that have one of them have --overwrite, and so do `WRITING`."""

WRITING = ("explore", "reproduce")

NOT_ASKED = {"default_map": dict.fromkeys(("help", "install_completion", "show_completion"), False)}
"""Flags that are not given are False and not None, which typer would validate with pydantic: a slow import."""


class SectionedCommand(TyperCommand):
    """A command whose help groups its options by concept.

    Typer does this with rich, whose import takes longer than all the rest of `--help`.
    """

    def sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Names and help texts by section: arguments first, and last the presets, where there is --preset."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            usual = f"{parameter.param_type_name.capitalize()}s"  # "Arguments" or "Options"
            record = parameter.get_help_record(ctx)
            if record is not None:
                name, text = record
                entry = name.replace("<list[str]>", "<str>"), text  # the dots after it say that several are allowed
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(entry)
            if parameter.name == "preset":
                from scansnap.dynamics.published import PUBLISHED

                sections["Presets"] = [(name, experiment.about) for name, experiment in PUBLISHED.items()]
            if parameter.name == "system":
                sections.setdefault("Presets", []).append(("others", "Presets of other systems: scansnap systems."))
        sections["Presets"] = sections.pop("Presets", [])
        return {title: entries for title, entries in sections.items() if entries}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, entries in self.sections(ctx).items():
            with formatter.section(typer.style(title, bold=True)):
                formatter.write_dl(
                    [(typer.style(name, fg="cyan"), text.replace("-", HYPHEN)) for name, text in entries]
                )

    def get_help(self, ctx: Any) -> str:
        text, self.help = self.help, (self.help or "").replace("-", HYPHEN)
        shown = super().get_help(ctx).replace(HYPHEN, "-")
        self.help = text
        return shown


def lazy_group(homes: Mapping[str, str]) -> type[TyperGroup]:
    """The class of a group of commands, given the `module:function` of each."""

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            names = {name: TyperCommand(name, short_help=_first_sentence(home)) for name, home in homes.items()}
            self.commands = {**names, **self.commands}

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in homes:
                command = _load(name, homes[name])
            return name, command, rest

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as stop:  # typer would print "Aborted!"
                raise Stopped(stop) from None

    return LazyGroup


def _first_sentence(home: str) -> str:
    """The first paragraph of a command's docstring, read without running its module."""
    module, name = home.split(":")
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return (ast.get_docstring(function) or "").split("\n\n")[0]


def _load(name: str, home: str) -> Any:
    """The command, with its module imported."""
    module, function = home.split(":")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    command = getattr(import_module(f"scansnap.cli.{module}"), function)
    if name in WRITING or WRITTEN & set(inspect.signature(command).parameters):
        command = _with_overwrite(command)
    alone.command(name, cls=SectionedCommand, context_settings=NOT_ASKED)(command)
    return typer.main.get_command(alone)


def _with_overwrite(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the flag --overwrite."""

    @functools.wraps(command)
    def run(*, overwrite: bool, **kwargs: Any) -> None:
        from scansnap.storage.files import OVERWRITE

        OVERWRITE.set(overwrite)
        command(**kwargs)

    own = inspect.signature(command, eval_str=True).parameters.values()
    option = typer.Option("--overwrite", help="Replace files that scansnap did not write.")
    keyword = inspect.Parameter.KEYWORD_ONLY
    flag = inspect.Parameter("overwrite", keyword, default=False, annotation=Annotated[bool, option])
    parameters = [*(parameter.replace(kind=keyword) for parameter in own), flag]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


app = typer.Typer(
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": WIDTH, **NOT_ASKED},
)
for name, (about, commands) in GROUPS.items():
    group = typer.Typer(cls=lazy_group(commands), no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group, name=name, help=about, short_help=about, context_settings=NOT_ASKED)


def _show_version(asked: bool) -> None:
    if asked:
        from scansnap.storage.provenance import commit, version_of

        echo(f"scansnap {version_of('scansnap')} (commit {commit()})")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show version and commit."),
    ] = False,
) -> None:
    """Compute the training dynamics of attention exactly.

    New here? `scansnap train` shows attention scan and snap in a few seconds, `scansnap explore` lets you change rates
    and data while it trains, and `scansnap COMMAND --help` explains a command.
    """


def main() -> None:
    """Run the program.

    A refusal, by scansnap or by the system, or an error in the user's file is printed as one sentence; the status is 2.
    """
    let_waiting_threads_sleep()
    with stopping_on_signals(), papers_left_out_in_one_line():
        try:
            with needs_torch("this command"):
                app()
        except (Exception, KeyboardInterrupt) as error:
            from scansnap.validation.user_code import user_mistake

            refusal = Stopped(error) if isinstance(error, KeyboardInterrupt) else error
            sentence = str(refusal) if isinstance(refusal, ScanSnapError) else user_mistake(refusal)
            if sentence is None and isinstance(refusal, OSError):
                file = f" ({refusal.filename})" if refusal.filename else ""
                sentence = f"the system refuses: {refusal.strerror or refusal}{file}."
            if sentence is None:
                raise
            echo(f"scansnap: {sentence}", error=True)
            sys.exit(getattr(refusal, "status", 2))
