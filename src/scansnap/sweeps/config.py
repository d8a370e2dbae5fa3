"""A sweep as a small TOML file, with the words of `sweep`:

classes = ["syn-medium-1", "syn-medium-3"]      # names, or .toml and .json files beside this one
lr_z = [0.5, 1, 2, 3]
lr_y_over_lr_z = [1, 2, 5, 10]
seeds = "0:10"                                  # or a list
steps = 100
momentum = 0.9
init = "uniform"
seq_len = [128, inf]
batch_size = "none"                             # the expected update
"""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

from scansnap.base.errors import InputError, unknown
from scansnap.data.named_classes import named_classes
from scansnap.sweeps.grid import MOST_RUNS
from scansnap.sweeps.sweep import sweep

ELSEWHERE = ("store", "cluster", "progress")
"""Arguments that say where and how to run, and not what: they are given when the sweep is started."""


def read_sweep(path: str | Path) -> dict[str, Any]:
    """The arguments of `sweep` written in a file: `sweep(**read_sweep("sweep.toml"))`."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the sweep file {path}: {error.strerror or error}.") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} is not a valid TOML file: {error}.") from None
    allowed = [name for name in inspect.signature(sweep).parameters if name not in ELSEWHERE]
    for name in content:
        if name not in allowed:
            raise InputError(f"{path}: {unknown('key', name, allowed)}")
    for name in ("classes", "lr_z", "steps"):
        if name not in content:
            raise InputError(f"{path} has no {name}: a sweep needs classes, lr_z, lr_y or lr_y_over_lr_z, and steps.")
    found = {name: _plain(value) for name, value in content.items()}
    names = found["classes"] if isinstance(found["classes"], list) else [found["classes"]]
    try:
        found["classes"] = {Path(name).stem: named_classes(name, path.parent) for name in names}
        if isinstance(found.get("seeds"), str):
            found["seeds"] = seeds_of(found["seeds"])
    except (InputError, TypeError) as error:
        raise InputError(f"{path}: {error}") from None
    return found


def seeds_of(text: str, name: str = "seeds") -> list[int]:
    """`0`, `0,1,2` or `0:10` as whole numbers."""
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            if last - first > MOST_RUNS:
                raise InputError(f"{name} is '{text}', {last - first:,} seeds: there may be up to {MOST_RUNS:,}.")
            return list(range(first, last))
        return [int(part) for part in text.split(",")]
    except InputError:
        raise
    except ValueError:
        raise InputError(f"{name} is '{text}': give whole numbers, as 0 or 0,1,2 or 0:10.") from None


def _plain(value: Any) -> Any:
    """`"none"` as None, also in a list; TOML has no word for it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, str) and value.lower() == "none" else value
