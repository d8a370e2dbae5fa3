"""The program `scansnap`: one command per verb of the library."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from scansnap.cli.lazy import group_of
from scansnap.cli.say import say
from scansnap.cli.sections import WIDTH
from scansnap.cli.stopping import Stopped, stopping_on_signals
from scansnap.runtime.errors import ScanSnapError
from scansnap.runtime.machine import let_waiting_threads_sleep, needs_torch
from scansnap.validation.user_code import user_mistake

COMMANDS = {
    "train": "train:command",
    "flow": "flow:command",
    "sweep": "sweep:command",
    "verify": "verify:command",
    "figure": "figure:command",
    "shortcuts": "shortcuts:command",
    "explore": "explore:command",
    "reproduce": "reproduce:command",
    "check": "check:command",
}
"""Where each command lives: `module:function`."""

GROUPS = {
    "text": (
        "Train transformers on text and follow their attention.",
        {"train": "text:train", "show": "text:show"},
    ),
    "watch": (
        "Watch the attention of models while they train.",
        {"show": "watch:show", "checkpoints": "watch:checkpoints", "demo": "watch:demo"},
    ),
    "corpus": (
        "Count which tokens occur together in a text, look at the counts, and predict what attention will pick.",
        {"count": "corpus:count", "show": "corpus:show", "classes": "corpus:classes", "predict": "corpus:predict"},
    ),
}
"""Commands of two words: what they are about, and where each lives."""

app = typer.Typer(
    cls=group_of(COMMANDS),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={
        "max_content_width": WIDTH,
        # A flag that is not given is False, not None, which would be validated by pydantic, whose import takes long.
        "default_map": dict.fromkeys(("help", "install_completion", "show_completion"), False),
    },
)
for name, (about, commands) in GROUPS.items():
    app.add_typer(
        typer.Typer(cls=group_of(commands), no_args_is_help=True, rich_markup_mode=None, help=about, short_help=about),
        name=name,
    )


def _show_version(asked: bool) -> None:
    if asked:
        from scansnap.results.provenance import commit, version_of

        say(f"scansnap {version_of('scansnap')} (commit {commit()})")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show version and commit."),
    ] = False,
) -> None:
    """The training dynamics of attention, exact and executable.

    New here? `scansnap train` shows attention scan and snap in a few seconds, `scansnap explore` lets you change rates
    and data while it trains, and `scansnap COMMAND --help` explains a command.
    """


def main() -> None:
    """Run the program.

    A refusal, by it or by the system, or a mistake in the user's file is one sentence on the error stream and status 2.
    """
    let_waiting_threads_sleep()
    with stopping_on_signals():
        try:
            with needs_torch("this command"):
                app()
        except (Exception, KeyboardInterrupt) as error:
            refusal = Stopped(error) if isinstance(error, KeyboardInterrupt) else error
            sentence = str(refusal) if isinstance(refusal, ScanSnapError) else user_mistake(refusal)
            if sentence is None and isinstance(refusal, OSError):
                file = f" ({refusal.filename})" if refusal.filename else ""
                sentence = f"the system refuses: {refusal.strerror or refusal}{file}."
            if sentence is None:
                raise
            say(f"scansnap: {sentence}", error=True)
            sys.exit(getattr(refusal, "status", 2))
