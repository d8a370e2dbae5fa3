"""What is measured beside a capture waits for what it reads, and is waited for; streams are imitated here."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from scansnap.monitor.aside import LANES, Aside


class Stream:
    """A stream that notes for whom it waits."""

    def __init__(self, name: str, waits: list[str]) -> None:
        self._name, self._waits = name, waits

    def wait_stream(self, other: Stream) -> None:
        self._waits.append(f"{self._name} for {other._name}")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    waits: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main", waits))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("beside", waits))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext(waits.append(f"on {stream._name}")))
    return waits


def test_each_waits_for_the_other(waits: list[str]) -> None:
    aside = Aside(torch.device("cuda"))
    with aside.reading(torch.zeros(2)):
        waits.append("measure")
    aside.join()
    aside.join()  # a stream that did nothing is not waited for: it is not captured
    assert waits == ["beside for main", "on beside", "measure", "main for beside"]


def test_what_reads_on_another_lane_is_waited_for_too(waits: list[str]) -> None:
    aside = Aside(torch.device("cuda"))
    for lane in range(LANES):
        with aside.reading(torch.zeros(2), lane=lane):
            pass
    aside.join()
    assert waits == ["beside for main", "on beside"] * LANES + ["main for beside"] * LANES


def test_a_model_that_overwrites_what_is_read_is_not_captured(waits: list[str]) -> None:
    """An overwritten query would be measured before or after the change, as it happens."""
    aside, query = Aside(torch.device("cuda")), torch.zeros(2)
    with aside.reading(query):
        pass
    query.add_(1.0)
    with pytest.raises(RuntimeError, match="the model changes what its attention reads"):
        aside.join()
    aside.join()  # the next pass begins anew


def test_where_nothing_is_captured_there_is_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", None)
    aside, query = Aside(torch.device("cpu")), torch.zeros(2)
    with aside.reading(query):
        pass
    query.add_(1.0)
    aside.join()
