"""Lines of progress where there is no terminal."""

from __future__ import annotations

import io
import threading
import time

import pytest

from scansnap.runtime import progress
from scansnap.runtime.progress import Standing, progress_bar, report


class Clock:
    """A clock that `wait` sets forward; after `end` seconds the work has ended."""

    def __init__(self, end: float) -> None:
        self.now, self._end = 100.0, 100.0 + end

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now = min(self._end, self.now + seconds)
        return self.now == self._end


def test_a_line_comes_after_ten_seconds_and_then_rarely(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(3600)
    state = Standing("training", 100, clock)
    times: list[float] = []

    def wait(seconds: float) -> bool:
        ended = clock.wait(seconds)
        times.append(clock.now - 100)
        return ended

    report(state, wait)
    assert times[:6] == [10, 30, 70, 150, 310, 610]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[:3] == [f"training: 0% after {spent}" for spent in ("10 s", "30 s", "1 min 10 s")]
    assert len(captured.err.splitlines()) == 15


def test_the_time_left_follows_from_the_pace_since_the_first_update() -> None:
    clock = Clock(1e6)
    state = Standing("sweeping", 1000, clock)
    clock.wait(20)  # compiles
    state.update(500)  # what an earlier process did
    clock.wait(30)
    assert state.line() == "sweeping: 50% after 50 s"
    state.update(600, "(shard 3\x1b[2J)")
    clock.wait(10)
    assert state.line() == "sweeping (shard 3\\x1b[2J): 60% after 1 min 0 s, about 2 min 0 s left"
    clock.wait(7200)
    assert state.line().startswith("sweeping (shard 3\\x1b[2J): 60% after 2 h 1 min")


def test_an_unknown_amount_of_work() -> None:
    clock = Clock(60)
    state = Standing("making figure 6", None, clock)
    clock.wait(12)
    assert state.line() == "making figure 6: 12 s so far"


def test_lines_end_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "FIRST", 0.01)
    threads = threading.active_count()
    with progress_bar("waiting", 4) as update:
        update(1)
        deadline = time.monotonic() + 10
        while "waiting: 25% after 0 s" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "waiting: 25% after 0 s" in stream.getvalue()
    assert threading.active_count() == threads
    with progress_bar("waiting", 4, False):
        assert threading.active_count() == threads
