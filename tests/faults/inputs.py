"""Class files, sweep configurations and command lines with mistakes in them: an answer, or one sentence."""

from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from click.testing import CliRunner

import scansnap as ss
from scansnap.cli.app import COMMANDS, GROUPS, app
from scansnap.dynamics.grid import make_grid
from scansnap.runtime.errors import ScanSnapError
from scansnap.validation.user_code import user_mistake
from tests.faults.values import HOSTILE_NAMES, PLAIN, attempt

CLASSES: dict[str, Any] = {
    "vocab_size": 7,
    "token_names": ["the", "cat", "dog", "sat", "ran", "mat", "bone"],
    "class": [
        {"query": "sat", "next_token": "mat", "tokens": ["the", "cat"], "probs": [0.5, 0.5], "weight": 0.5},
        {"query": 4, "next_token": 6, "tokens": [0, 2], "probs": [0.5, 0.5], "weight": 0.5},
    ],
}
POSITIONED: dict[str, Any] = {
    "vocab_size": 5,
    "positions": [1, 2],
    "class": [{"query": 3, "next_token": 4, "tokens": [0, 1], "probs": [[0.5, 0.5], [0.2, 0.8]]}],
}
SWEEP: dict[str, Any] = {
    "classes": ["syn-small", "single-common"],
    "lr_z": [0.5, 1],
    "lr_y_over_lr_z": [1, 2],
    "seeds": "0:3",
    "steps": 3,
    "momentum": 0.9,
    "init": "uniform",
    "seq_len": [8, 16],
    "batch_size": "none",
    "record": ["loss"],
    "heads": 1,
    "optimizer": "sgd",
    "residual": [True, False],
    "record_every": 1,
}

EXECUTION = ("memory", "shard_size", "retries")


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a nested structure."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def spoiled_content(content: dict[str, Any], rng: np.random.Generator) -> Any:
    """The content with up to three entries replaced, removed, doubled or added."""
    content = copy.deepcopy(content)
    for _ in range(rng.integers(0, 4)):
        path = places(content)[rng.integers(len(places(content)))]
        odd = PLAIN[rng.integers(len(PLAIN))]
        if not path:
            content[str(odd)[:20]] = odd
            continue
        holder: Any = content
        for key in path[:-1]:
            holder = holder[key]
        change = rng.integers(4)
        if change == 0:
            del holder[path[-1]]
        elif change == 1 and isinstance(holder, list):
            holder.append(holder[path[-1]])
        else:
            holder[path[-1]] = copy.deepcopy(odd)
        if not isinstance(content, dict) or not content:
            return odd
    return content


def written(content: Any, suffix: str, rng: np.random.Generator) -> bytes:
    """The content as text, sometimes with bytes cut out, doubled or replaced."""
    try:
        text = json.dumps(content) if suffix == ".json" else tomli_w.dumps(content)
    except (TypeError, ValueError, AttributeError):  # TOML has no null, and a top level of its own
        text = repr(content)
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if rng.random() < 0.25 and data:
        start, end = sorted(rng.integers(0, len(data) + 1, 2))
        data[start:end] = [b"", data[start:end] * 2, b"\xff\x00", b"[" * 5000, b"9" * 6000][rng.integers(5)]
    return bytes(data)


def read_spoiled_files(folder: Path, count: int, seed: int = 1) -> Counter[str]:
    """Read class files and sweep configurations with mistakes in them, and count what came out."""
    rng, seen = np.random.default_rng(seed), Counter[str]()
    for i in range(count):
        content, suffix = ((CLASSES, ".toml"), (POSITIONED, ".json"), (CLASSES, ".json"), (SWEEP, ".toml"))[i % 4]
        path = folder / f"file{suffix}"
        path.write_bytes(written(spoiled_content(content, rng), suffix, rng))
        seen[attempt(lambda path=path: read(path), f"{path.name} {path.read_bytes()[:300]!r}")] += 1  # type: ignore[misc]
    return seen


def read(path: Path) -> None:
    """Read a class file, or a sweep configuration and make its grid."""
    if b"classes" in path.read_bytes()[:30]:
        classes, options = ss.read_sweep(path)
        make_grid(classes, **{name: value for name, value in options.items() if name not in EXECUTION})
        return
    classes = ss.read_classes(path)
    assert np.isfinite(classes.token_probs).all()
    assert not (classes.query == classes.next_token).any()


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
    "explore": "--output page.html",
    "reproduce": "--output /dev/null/x",
    "check": "missing.zarr",
    "systems": "reversal",
    "text train": "missing.txt --steps 1",
    "text show": "missing.zarr",
    "text classes": "missing.txt",
    "watch show": "missing.zarr --once",
    "watch checkpoints": "missing",
    "watch compare": "missing.zarr others.zarr",
}
"""Good and quick words for each command, or words that stop it before long work."""


def command_names() -> list[str]:
    """Every command of the program."""
    return [*COMMANDS, *(f"{group} {name}" for group, (_, commands) in GROUPS.items() for name in commands)]


def options_of_command(name: str) -> list[str]:
    """The options of a command, and "" for its argument."""
    command: Any = app
    for word in name.split():
        command = command.load(word)
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    flags = [max(option.opts, key=len) for option in options if not option.is_flag]
    return ["", *flags]


def spoiled_command(rng: np.random.Generator) -> list[str]:
    """A command line, in which most often one option, or the argument, has one of the odd words."""
    name = str(rng.choice(command_names()))
    base, option = BASE[name].split(), str(rng.choice(options_of_command(name)))
    word = str(WORDS[rng.integers(len(WORDS))])
    if rng.random() < 0.25:
        return [*name.split(), *base]
    if option:
        return [*name.split(), *base, option, word]
    return [*name.split(), word, *(base if base and base[0].startswith("-") else base[1:])]


def run(words: list[str]) -> Any:
    """The result of a command; raises what a user would see as a traceback."""
    result = CliRunner().invoke(app, words)
    error = result.exception
    if error is None or isinstance(error, SystemExit | ScanSnapError | OSError) or user_mistake(error) is not None:
        return result
    raise error


def run_spoiled(count: int, seed: int) -> Counter[str]:
    """Run command lines with mistakes, and count what came out."""
    rng, seen = np.random.default_rng(seed), Counter[str]()
    for _ in range(count):
        words = spoiled_command(rng)
        result: list[Any] = []
        end = attempt(lambda words=words, result=result: result.append(run(words)), " ".join(words))  # type: ignore[misc]
        seen["refused" if end == "valid" and result[0].exit_code else end] += 1
    return seen
