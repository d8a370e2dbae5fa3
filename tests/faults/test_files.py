"""Class files and sweep configurations with mistakes in them: read, or refused in one sentence."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import scansnap as ss
from scansnap.dynamics.grid import make_grid
from scansnap.runtime.errors import InputError
from tests.faults.values import HOSTILE_NAMES, attempt

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

ODD: tuple[Any, ...] = (
    *(0, 1, -1, 2, 1.5, -0.5, 1e300, math.nan, math.inf, 10**18, 10**400, True, None),
    *("", "1", "x", "none", "a\0b", "syn-small", "missing.toml", "0:5", "5:0", "log:1:9:3", "\ud800"),
    *([], [[]], {}, [1], [0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], ["a"], [None], [True, False], {"a": 1}, [{}]),
    *(["the", "the"], [0, 0], [1, [2]], ["syn-small", "syn-small"], ["sgd", "adam"]),
    *HOSTILE_NAMES[:18],
)


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a nested structure."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def spoiled(content: dict[str, Any], rng: np.random.Generator) -> Any:
    """The content with one to three entries replaced, removed, doubled or added."""
    content = copy.deepcopy(content)
    for _ in range(rng.integers(1, 4)):
        path = places(content)[rng.integers(len(places(content)))]
        odd = ODD[rng.integers(len(ODD))]
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
        path.write_bytes(written(spoiled(content, rng), suffix, rng))
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


def test_files_with_mistakes(tmp_path: Path) -> None:
    seen = read_spoiled_files(tmp_path, 160)
    assert set(seen) == {"valid", "refused"}, seen


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"token_names": [["the"], "cat", "dog", "sat", "ran", "mat", "bone"]}, "token_names is"),
        ({"token_names": ["the", "cat", "dog", "sat", "ran", "mat", "b\x00ne"]}, "without NUL"),
        ({"token_names": [None] * 7}, "token_names is"),
        ({"positions": 5}, "positions is 5: give the number of positions in each bucket"),
        ({"vocab_size": 10**400}, "vocab_size is 1000"),
        ({"0.probs": ["0.5", "0.5"]}, "cannot be read as an array of numbers"),
        ({"0.probs": [True, False]}, "cannot be read as an array of numbers"),
        ({"0.probs": [[0.5, 0.5]]}, "probs of class 0 is [[0.5, 0.5]]: give one number for each of its tokens"),
        ({"0.next_token": "sat"}, "give it a next token other than its query"),
        ({"0.query": [1]}, "a token is [1]: give an id (a whole number) or a name"),
    ],
)
def test_what_was_accepted_or_traced_before(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    content = copy.deepcopy(CLASSES)
    for key, value in change.items():
        place = content["class"][0] if key.startswith("0.") else content
        place[key.removeprefix("0.")] = value
    path = tmp_path / "classes.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        ss.read_classes(path)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"vocab_size": ' + "9" * 100_000 + "}", '{"class": ' * 50_000])
@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_deep_and_long_files(text: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"deep{suffix}"
    path.write_text(f"x = {text}" if suffix == ".toml" else text)
    with pytest.raises(InputError, match="is not valid"):
        ss.read_classes(path)
