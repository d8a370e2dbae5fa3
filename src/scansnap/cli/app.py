"""The program `scansnap`: one command per verb of the library.

A command's module is imported when the command is called or its help is asked for; lists of commands show the first
sentence of each docstring, read without importing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from scansnap.cli.completion import SHELLS, install_completion, print_completion
from scansnap.cli.console import Stopped, echo, papers_left_out_in_one_line, stopping_on_signals
from scansnap.cli.flags import HelpContext, Word, eager_flag
from scansnap.runtime.errors import InputError, ScanSnapError
from scansnap.runtime.machine import let_waiting_threads_sleep, needs_torch
from scansnap.runtime.removed import REMOVED_COMMANDS

PROGRAM = "scansnap"
COMMANDS = {
    "train": "train:train",
    "flow": "train:flow",
    "sweep": "sweep:sweep",
    "verify": "verify:verify",
    "systems": "system:systems",
    "figure": "figure:figure",
    "explore": "explore:explore",
    "reproduce": "figure:reproduce",
    "check": "common:check",
}
"""The `module:command` of each command."""

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
"""Commands of two words: the help of the group, and the `module:command` of each command."""

WIDTH = 100
"""The largest number of characters in a line of help."""


class LazyGroup(click.Group):
    """A group of commands whose modules are imported when they are needed."""

    context_class = HelpContext

    def __init__(self, name: str, homes: Mapping[str, str], **settings: Any) -> None:
        listed = {name: click.Command(name, short_help=_first_sentence(home)) for name, home in homes.items()}
        super().__init__(name, commands=listed, **settings)
        self.homes = homes

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        _check_removed([*([] if self.name == PROGRAM else [str(self.name)]), *args])
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else self.load(name), rest

    def load(self, name: str) -> click.Command:
        """The command with that name, with its module imported."""
        if name not in self.homes:
            return self.commands[name]
        module, function = self.homes[name].split(":")
        command: click.Command = getattr(import_module(f"scansnap.cli.{module}"), function)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:  # click would print "Aborted!"
            raise Stopped(stop) from None


def _first_sentence(home: str) -> str:
    """The first paragraph of a command's docstring, read without running its module."""
    module, name = home.split(":")
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return (ast.get_docstring(function) or "").split("\n\n")[0]


def _check_removed(words: list[str]) -> None:
    """Refuse a command that earlier versions had, and say what replaces it."""
    for name in (" ".join(words[:2]), words[0]):
        if name in REMOVED_COMMANDS:
            raise InputError(f"the command '{name}' was removed in version 0.2: {REMOVED_COMMANDS[name]}.")


def _print_version(_: bool) -> None:
    from scansnap.storage.provenance import commit, version_of

    echo(f"scansnap {version_of('scansnap')} (commit {commit()})")
    sys.exit()


def _completion_flag(name: str, meaning: str, act: Any) -> click.Option:
    """A flag about completion, whose value is a shell, by default the user's."""
    shell = Word("|".join(SHELLS), lambda _, word: word)
    return eager_flag(name, meaning, act, is_flag=False, flag_value="", type=shell, metavar="[SHELL]")


app = LazyGroup(
    PROGRAM,
    COMMANDS,
    help="""Compute the training dynamics of attention exactly.

    New here? `scansnap train` shows attention scan and snap in a few seconds, `scansnap explore` lets you change rates
    and data while it trains, and `scansnap COMMAND --help` explains a command.
    """,
    params=[
        eager_flag("--version", "Show version and commit.", _print_version, is_flag=True),
        _completion_flag(
            "--install-completion", "Install completion for your shell: bash, zsh or fish.", install_completion
        ),
        _completion_flag("--show-completion", "Show the script of this completion.", print_completion),
    ],
    context_settings={"max_content_width": WIDTH},
)
for name, (about, homes) in GROUPS.items():
    app.add_command(LazyGroup(name, homes, help=about, short_help=about))


def main() -> None:
    """Run the program.

    A refusal, by scansnap or by the system, or an error in the user's file is printed as one sentence; the status is 2.
    """
    let_waiting_threads_sleep()
    with stopping_on_signals(), papers_left_out_in_one_line():
        try:
            with needs_torch("this command"):
                app(prog_name=PROGRAM)
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
