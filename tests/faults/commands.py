"""Command lines with one thing wrong in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import typer
from typer.testing import CliRunner

from scansnap.cli.app import COMMANDS, GROUPS, app
from scansnap.runtime.errors import ScanSnapError
from scansnap.validation.user_code import user_mistake
from tests.faults.values import HOSTILE_NAMES

PLAIN_WORDS = """
    0 -1 1e300 -1e300 nan inf 1e-400 0x10 1,2 , 1,,2 none yes x . .. / ./ ~ ~nouser/x /dev/null /dev/null/x
    /proc/nothing x.toml missing.json x.png log:1:10:1e11 log:0:1:2 0:10 10:0 0:99999999999 1;2 {} [] a=b
    a=1,b= common=nan alibi=x ' " \\ %s -- *
"""
WORDS = (
    *PLAIN_WORDS.split(),
    *("", " ", "9" * 5000, "x" * 300 + ".zarr", "a/b/" * 100, "\udce4"),
    *(name for name in HOSTILE_NAMES if len(name) < 200),
)
"""Words that mean nothing, or too much, to an option."""

BASE = {
    "train": "--classes syn-small --lr-y 1 --lr-z 1 --steps 1 --batch-size 2 --seq-len 4 --store s.zarr",
    "flow": "--classes syn-small --lr-y 1 --lr-z 1 --times 1 --store f.zarr",
    "sweep": "--classes syn-small --lr-y 1 --lr-z 1 --steps 1 --batch-size 2 --seq-len 4 --store w.zarr",
    "verify": "lemma_6",
    "figure": "none-such",
    "explore": "--no-open",
    "reproduce": "--output /dev/null/x",
    "check": "missing.zarr",
    "text train": "missing.txt --steps 1",
    "text show": "missing.zarr",
    "watch show": "missing.zarr --once",
    "watch checkpoints": "missing",
    "watch demo": "--output /dev/null/x",
    "corpus count": "missing.txt",
    "corpus show": "missing",
    "corpus classes": "missing",
    "corpus predict": "missing.txt",
    "shortcuts": "missing.csv --text x --label y",
}
"""Good and quick words for each command, or words that stop it before long work."""


def command_names() -> list[str]:
    """Every command of the program."""
    return [*COMMANDS, *(f"{group} {name}" for group, (_, commands) in GROUPS.items() for name in commands)]


def options_of_command(name: str) -> list[str]:
    """The options of a command, and "" for its argument."""
    command: Any = typer.main.get_command(app)
    for word in name.split():
        _, command, _ = command.resolve_command(typer.Context(command), [word])
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    flags = [max(option.opts, key=len) for option in options if not option.is_flag]
    return ["", *flags]


def spoiled(per_option: int, seed: int = 0) -> Iterator[list[str]]:
    """Command lines in which one option, or the argument, has one of the odd words."""
    rng = np.random.default_rng(seed)
    for name in command_names():
        for option in options_of_command(name):
            for word in rng.permutation(np.array(WORDS, object))[:per_option]:
                base = BASE[name].split()
                if option:
                    yield [*name.split(), *base, option, str(word)]
                else:
                    yield [*name.split(), str(word), *(base if base and base[0].startswith("-") else base[1:])]


def run(words: Sequence[str]) -> tuple[Any, str]:
    """The command's result, and the traceback that a user would see: empty if there is none, or `main` answers it."""
    result = CliRunner().invoke(app, list(words))
    error = result.exception
    if error is None or isinstance(error, SystemExit | ScanSnapError | OSError) or user_mistake(error) is not None:
        return result, ""
    return result, f"{type(error).__name__}: {error}"[:200]
