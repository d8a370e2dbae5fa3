"""A small round of each attack: work ends in identical numbers, a valid answer or one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.__main__ import is_bad, rows

SCALES = {
    "kills train": 1 / 15,
    **{f"damage {name}": 1 / 10 for name in ("train", "sweep", "flow", "watch", "cache")},
    **{f"writers {name}": 1 / 20 for name in ("sweep", "cache")},
    **{f"power-cuts {name}": 1 / 80 for name in ("train", "sweep")},
    "power-cuts flow": 1 / 50,
    "power-cuts cache": 1 / 4,
    **{f"full-disk {name}": 1 / 40 for name in ("train", "sweep", "watch")},
    "calls theory": 0.08,
    "calls data": 0.04,
    "calls results": 0.02,
    "calls runs": 0.005,
    "calls text": 0.007,
    "files": 0.13,
    "command-lines": 0.06,
}
"""The size of each round, as a share of that of `python -m tests.faults`."""

LEAST = {
    "kills": ("identical", 1),
    "damage": ("refused", 5),
    "damage cache": ("identical", 13),
    "writers": ("identical", 1),
    "writers cache": ("identical", 4),  # processes wait for a cache
    "power-cuts": ("identical", 6),
    "full-disk": ("first refused", 2),
    "calls": ("valid", 13),
    "files": ("valid", 1),
    "command-lines": ("refused", 1),
}
"""What must come out, and how often at least: otherwise nothing was attacked."""


@pytest.mark.parametrize("name", SCALES)
def test_an_attack_does_no_harm(name: str, tmp_path: Path) -> None:
    seen = rows(SCALES[name], seed=1)[name](tmp_path)
    assert not any(map(is_bad, seen)), seen
    result, count = LEAST.get(name, LEAST[name.split()[0]])
    assert seen[result] >= count, seen
    if name.startswith("calls"):
        assert seen["valid"] > sum(seen.values()) / 4, seen
    if name == "files":
        assert seen["refused"] >= 1, seen
