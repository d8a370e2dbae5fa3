"""Damage to one file of a folder, and what becomes of it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xarray as xr

import scansnap as ss

KINDS = ("one bit flipped", "truncated", "deleted", "emptied", "a byte appended", "zeros in place of a part")


def damage(folder: Path, draw: random.Random) -> str:
    """Damage a file of the folder; returns which, and how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    kinds = [path for path in files if not path.name.startswith(".")]  # most files describe, few have numbers
    path = draw.choice(kinds if draw.random() < 0.6 and kinds else files)
    kind = draw.choice(KINDS)
    data = bytearray(path.read_bytes())
    if kind == "deleted":
        path.unlink()
    elif kind == "emptied" or not data:
        path.write_bytes(b"" if data else b"\1")
    elif kind == "truncated":
        path.write_bytes(data[: draw.randrange(len(data))])
    elif kind == "a byte appended":
        path.write_bytes(data + bytes([draw.randrange(256)]))
    elif kind == "one bit flipped":
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
    else:
        first = draw.randrange(len(data))
        last = min(len(data), first + draw.randrange(1, 64))
        if not any(data[first:last]):
            data[first] ^= 1  # it was zero already
        else:
            data[first:last] = bytes(last - first)
        path.write_bytes(data)
    return f"{path.relative_to(folder)}: {kind}"


def outcomes(
    original: Path, use: Callable[[Path], Any], same: Callable[[Any], bool], count: int, folder: Path, seed: int = 0
) -> Counter[str]:
    """Damage copies of a folder, use them, and count what came out: refused, the same, silent or a stack trace."""
    draw = random.Random(seed)
    seen: Counter[str] = Counter()
    for number in range(count):
        copy = folder / f"{number}"
        shutil.copytree(original.parent, copy)
        what = damage(copy / original.name, draw)
        try:
            seen["the same numbers" if same(use(copy / original.name)) else f"SILENT {what}"] += 1
        except ss.ScanSnapError as error:
            seen["refused" if "\n" not in str(error) else f"SEVERAL LINES {what}"] += 1
        except Exception as error:
            seen[f"STACK TRACE {what}: {type(error).__name__} {error}"] += 1
        shutil.rmtree(copy)
    return seen


def identical(expected: xr.Dataset) -> Callable[[xr.Dataset], bool]:
    """Whether a dataset has the same numbers and labels."""
    return lambda other: bool(expected.load().equals(other.load()))
