"""Windows and batches of a text."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.text.windows import Columns, consecutive

TEXT = np.random.default_rng(0).integers(0, 50, 1000).astype(np.int32)


def test_windows_cover_the_text_in_order() -> None:
    columns = Columns(TEXT, 4, 7)
    inputs, targets = columns.at(3)
    for row in range(4):
        first = row * 250 + 21
        assert inputs[row].tolist() == TEXT[first : first + 7].tolist()
        assert targets[row].tolist() == TEXT[first + 1 : first + 8].tolist()
    assert columns.per_pass == 249 // 7
    assert Columns(TEXT, 4, 10).per_pass == 24  # the last of 25 windows of a column has no next token at its end
    assert np.array_equal(columns.at(columns.per_pass)[0], columns.at(0)[0])
    windows = consecutive(TEXT, 7)
    assert windows[:, :-1].ravel().tolist() == TEXT[: len(windows) * 7].tolist()
    assert (windows[:-1, -1] == windows[1:, 0]).all()


def test_windows_of_a_long_text_are_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scansnap.text.windows.MEASURED_TOKENS", 100)
    windows = consecutive(np.arange(1000), 10)
    assert windows.shape == (10, 11)
    assert (np.diff(windows) == 1).all()
    assert (windows[0, 0], windows[-1, -1]) == (0, 990)
    assert set(np.diff(windows[:, 0])) <= {100, 110}
