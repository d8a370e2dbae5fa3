"""Completion in shells: click makes the scripts, and this module puts them where shells look for them.

A script asks the program itself what may follow, by the environment variable `_SCANSNAP_COMPLETE`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from scansnap.cli.console import echo
from scansnap.runtime.errors import InputError


@dataclass(frozen=True)
class ScriptPlace:
    """Where a shell's script goes, below the user's home, and the line of the shell's own file that loads it."""

    script: str
    startup_file: str = ""
    line: str = ""


SHELLS = {
    "bash": ScriptPlace(".bash_completions/scansnap.sh", ".bashrc", "source '{script}'"),
    "zsh": ScriptPlace(".zfunc/_scansnap", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": ScriptPlace(".config/fish/completions/scansnap.fish"),
}


def print_completion(shell: str) -> None:
    """Print the script of a shell, and end."""
    echo(_script(_shell_named(shell)).rstrip())
    sys.exit()


def install_completion(shell: str) -> None:
    """Write the script of a shell where the shell finds it, and end."""
    from scansnap.storage.files import atomic_write, write_errors

    shell = _shell_named(shell)
    place, home = SHELLS[shell], Path.home()
    script = home / place.script
    with write_errors(script):
        script.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(script, _script(shell).encode())
    if place.startup_file:
        startup, line = home / place.startup_file, place.line.format(script=script)
        with write_errors(startup):
            text = startup.read_text(encoding="utf-8", errors="replace") if startup.exists() else ""
            if line not in text.splitlines():
                with startup.open("a", encoding="utf-8") as file:
                    file.write(f"\n{line}\n")
    echo(f"{shell} completion installed in {script}; it takes effect in a new terminal.")
    sys.exit()


def _shell_named(name: str) -> str:
    """The shell with that name, by default the user's."""
    shell = name or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        given = f"the shell is '{shell}'" if shell else "the environment's SHELL is not set"
        raise InputError(f"{given}: name one of {', '.join(SHELLS)}, as in --install-completion bash.")
    return shell


def _script(shell: str) -> str:
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None
    return complete(click.get_current_context().command, {}, "scansnap", "_SCANSNAP_COMPLETE").source()
