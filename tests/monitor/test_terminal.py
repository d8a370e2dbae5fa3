"""The live view: what it shows, and that it follows a store that grows."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

import scansnap as ss
from scansnap.monitor.store import SnapshotStore, read_snapshots
from scansnap.monitor.terminal import follow, heading, short, view
from tests.monitor.given_attention import anywhere, even, first, missing, snapshot


@pytest.fixture
def parts() -> list[xr.Dataset]:
    """A head collapses at step 100; the others stay even."""
    heads = [
        np.stack([even(24), first(24, 0.6), anywhere(24, sharp, np.random.default_rng(0))]) for sharp in (0, 0, 0.99)
    ]
    snapshots = [snapshot(50 * i, weights[None]) for i, weights in enumerate(heads)]
    return [*snapshots, missing(snapshots[0], 150, "out of memory")]


def write(path: Path, parts: list[xr.Dataset]) -> SnapshotStore:
    store = SnapshotStore(path)
    for part in parts:
        store.append(part)
    return store


def printed(path: Path, quantity: str = "normalized_entropy") -> str:
    console = Console(file=io.StringIO(), width=120)
    snapshots = read_snapshots(path)
    console.print(view(snapshots, quantity, heading(snapshots, path)))
    return console.file.getvalue()


def test_what_it_shows(tmp_path, parts) -> None:
    write(tmp_path / "a.zarr", parts)
    text = printed(tmp_path / "a.zarr")
    lines = text.splitlines()
    assert lines[0].startswith("GPT: snapshot 4 at step 150, 0:00:0")
    assert lines[0].endswith("ago; next at step 200")
    assert lines[1] == "missing snapshots: 1, the last at step 150 (out of memory)"
    (row,) = [line for line in lines if line.startswith("layer 0")]
    shares = parts[2]["normalized_entropy"].values[0, 0]
    assert row.split()[2:] == [short(value) for value in shares]
    assert lines[2] == "heads with an alarm: 1 of 3; heads on a single key: 1 of 3"
    assert lines[3] == "heads by verdict: 1 collapsed; 1 uniform; 1 sink; 1 sparse"
    assert lines[4].startswith("alarm: layer 0, head 2: collapsed since step 100: 99.")  # before the map
    severities = [line.split()[0] for line in lines if line.startswith(("alarm", "notice", "pattern"))]
    assert severities == sorted(severities)
    assert "\x1b" not in text  # a file has no colors


def test_many_heads_of_a_kind_are_counted(tmp_path) -> None:
    write(tmp_path / "a.zarr", [snapshot(0, np.broadcast_to(even(8), (4, 5, 8, 8)))])
    text = printed(tmp_path / "a.zarr", "entropy")
    assert text.count("notice") == 3
    assert "layer 2, all 5 heads" in text
    assert "5 more heads" in text


@pytest.mark.parametrize("color", [None, "truecolor"])
def test_many_heads_fit_on_a_line_and_can_be_told_apart(color) -> None:
    """By shades where there are no colors."""
    weights = np.stack([np.stack([first(8, head / 31) for head in range(32)])] * 2)
    console = Console(file=io.StringIO(), width=80, color_system=color, force_terminal=color is not None)
    console.print(view(snapshot(0, weights), "first_token", ""))
    rows = [line for line in console.file.getvalue().splitlines() if re.search(r"layer [01]", line) and "█" in line]
    assert [sum(map(row.count, "░▒▓█")) for row in rows] == [64, 64]
    styles = set(re.findall(r"38;2;[0-9;]+" if color else "[░▒▓█]", rows[0]))
    assert len(styles) > 20 if color else len(styles) >= 3
    assert "scale: .00" in console.file.getvalue()


def test_what_is_not_captured_or_judged_is_said(tmp_path, parts) -> None:
    coverage = "1 of 2 attention modules captured; not captured: mixer"
    write(tmp_path / "a.zarr", [part.drop_vars("effective_keys").assign_attrs(coverage=coverage) for part in parts])
    said = printed(tmp_path / "a.zarr")
    assert coverage in said
    assert "not judged: sparse (needs effective_keys)" in said


def test_it_follows_a_store_that_grows(tmp_path, parts) -> None:
    """Until it is interrupted."""
    store = write(tmp_path / "a.zarr", parts[:1])
    console = Console(file=io.StringIO(), width=120)
    waiting = list(parts[1:])

    def train_on(seconds: float) -> None:
        assert seconds == 0.5
        if not waiting:
            raise KeyboardInterrupt
        store.append(waiting.pop(0))

    follow(tmp_path / "a.zarr", "entropy", console, refresh=0.5, sleep=train_on)
    assert "snapshot 4 at step 150" in console.file.getvalue()


def test_no_snapshots_yet(parts) -> None:
    with pytest.raises(ss.InputError, match="there are no snapshots yet"):
        view(parts[0].isel(step=slice(0)), "entropy", "")
