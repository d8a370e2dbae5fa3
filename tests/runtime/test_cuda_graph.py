"""The order of a capture and what it leaves behind, with CUDA replaced by a fake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from scansnap.runtime.cuda_graph import WARM_UP, capture


class FakeStream:
    def __init__(self, events: list[str], name: str) -> None:
        self._events, self.name = events, name

    def wait_stream(self, other: FakeStream) -> None:
        self._events.append(f"{self.name} waits for {other.name}")


class FakeGraph:
    def __init__(self, events: list[str]) -> None:
        self._events = events

    def capture_begin(self) -> None:
        self._events.append("begin")

    def capture_end(self) -> None:
        self._events.append("end")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of CUDA, in order."""
    events: list[str] = []

    @contextmanager
    def inside(what: str) -> Iterator[None]:
        events.append(f"enter {what}")
        yield
        events.append(f"leave {what}")

    main = FakeStream(events, "main")
    monkeypatch.setattr(torch.cuda, "Stream", lambda: FakeStream(events, "side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: inside(stream.name))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: FakeGraph(events))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 10)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("wait"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: events.append("give back"))
    return events


def test_work_is_warmed_up_aside_and_then_captured(events: list[str]) -> None:
    assert isinstance(capture(lambda: events.append("work"), []), FakeGraph)
    assert events == [
        "side waits for main",
        "enter side",
        *["work"] * WARM_UP,
        "begin",
        "work",
        "end",
        "leave side",
        "main waits for side",
    ]


def test_where_memory_is_short_what_was_freed_is_given_back(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 60)
    capture(lambda: None, [])
    assert events[2:4] == ["wait", "give back"]


def test_a_capture_that_fails_is_ended(events: list[str]) -> None:
    def work() -> None:
        if "begin" in events:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        capture(work, [])
    assert events[-1] == "end"


def test_the_state_is_as_it_was(events: list[str]) -> None:
    """Each run starts from the same values, and they are restored into the very arrays that the graph uses."""
    step, weight, scratch = torch.zeros((), dtype=torch.int64), nn.Parameter(torch.tensor([1.0, 2.0])), torch.zeros(())
    arrays, seen = (step.data_ptr(), weight.data_ptr()), []

    def work() -> None:
        seen.append((int(step), weight.tolist()))
        weight.square().sum().backward()
        with torch.no_grad():
            weight.sub_(weight.grad)
        step.add_(1)
        scratch.add_(1)

    capture(work, [step, weight])
    assert seen == [(0, [1.0, 2.0])] * (WARM_UP + 1)
    assert (int(step), weight.tolist()) == (0, [1.0, 2.0])
    assert (step.data_ptr(), weight.data_ptr()) == arrays
    assert int(scratch) == WARM_UP + 1  # not part of the state
