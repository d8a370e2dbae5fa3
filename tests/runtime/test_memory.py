"""Memory, and how it is said."""

from __future__ import annotations

import os

import pytest

from scansnap.runtime import machine


def test_bytes_of_this_machine(monkeypatch) -> None:
    assert machine.physical_memory() > 2**28
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 100}.__getitem__)
    assert machine.physical_memory() == 409_600


@pytest.mark.parametrize(
    ("groups", "limits", "allowed"),
    [
        ("0::/job_7/step_0\n", {"job_7/memory.max": "3000", "job_7/step_0/memory.max": "max"}, 3000),
        (
            "4:cpu:/\n3:pids,memory:/x\n",
            {"memory/x/memory.limit_in_bytes": "2000\n", "cpu/x/memory.max": "1"},
            2000,
        ),
        ("0::/docker/seen/outside\n", {"memory.max": "1000"}, 1000),
        ("0::/../..\n", {"memory.max": "5000"}, 4096),
        ("", {"memory.max": "1"}, 4096),
        (None, {}, 4096),
    ],
)
def test_a_container_may_have_less(monkeypatch, tmp_path, groups, limits, allowed) -> None:
    """A scheduler's job, version 1, a container seen from inside only, a larger limit, no group, another system."""
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1}.__getitem__)
    monkeypatch.setattr(machine, "GROUPS_OF_PROCESS", tmp_path / "of_process")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    if groups is not None:
        (tmp_path / "of_process").write_text(groups)
    for name, limit in limits.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(limit)
    assert machine.physical_memory() == allowed


@pytest.mark.parametrize(
    ("gib", "words"),
    [(0, "0 KiB"), (0.001, "1 MiB"), (0.25, "0.25 GiB"), (9.4, "9.4 GiB"), (10.6, "11 GiB"), (2048, "2,048 GiB")],
)
def test_sizes_as_a_reader_wants_them(gib: float, words: str) -> None:
    assert machine.gibibytes(gib * 2**30) == words
