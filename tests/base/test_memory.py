"""Memory, and how it is said."""

from __future__ import annotations

import os

import pytest

from scansnap.base import memory


def test_bytes_of_this_machine(monkeypatch) -> None:
    assert memory.physical_memory() > 2**28
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 100}.__getitem__)
    assert memory.physical_memory() == 409_600


@pytest.mark.parametrize(
    ("gib", "words"),
    [(0, "0 KiB"), (0.001, "1 MiB"), (0.25, "0.25 GiB"), (9.4, "9.4 GiB"), (10.6, "11 GiB"), (2048, "2,048 GiB")],
)
def test_sizes_as_a_reader_wants_them(gib: float, words: str) -> None:
    assert memory.gibibytes(gib * 2**30) == words
