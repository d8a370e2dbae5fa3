"""Machine code that is kept: named tuples arrive as they are, and only whole files of the same kind are read."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from scansnap.runtime import kept_code
from scansnap.runtime.inner_function import kept


class Numbers(NamedTuple):
    rows: np.ndarray
    is_negative: bool
    factor: float
    shift: int


class Sums(NamedTuple):
    out: np.ndarray


@pytest.fixture
def weigh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kept_code.KeptFunction:
    """sums of rows, weighed and shifted."""
    module = ModuleType("small_kernel")

    @kept()
    def weigh(numbers, sums):
        for i in range(numbers.rows.shape[0]):
            sums.out[i] = numbers.shift
            for j in range(numbers.rows.shape[1]):
                sums.out[i] += (-1 if numbers.is_negative else 1) * numbers.factor * numbers.rows[i, j]

    module.weigh = weigh
    monkeypatch.setitem(sys.modules, "small_kernel", module)
    monkeypatch.setattr(kept_code, "source_stamp", lambda module: 7)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return kept_code.KeptFunction("small_kernel", "weigh")


def sums(weigh: kept_code.KeptFunction, dtype: str) -> list[float]:
    out = np.zeros(2)
    weigh(Numbers(np.arange(6, dtype=dtype).reshape(2, 3), True, 0.5, 3), Sums(out))
    return out.tolist()


def test_named_tuples_arrive_as_they_are(weigh: kept_code.KeptFunction, tmp_path: Path) -> None:
    assert not weigh.is_kept()
    for dtype in ("float64", "int32"):
        assert sums(weigh, dtype) == [1.5, -3.0]
    assert weigh.is_kept()
    assert len(list(tmp_path.glob("*.o"))) == 2


def test_arrays_with_gaps_and_other_numbers_are_not_misread(weigh: kept_code.KeptFunction) -> None:
    """Code for arrays without gaps would read what lies between their entries."""
    assert sums(weigh, "float64") == [1.5, -3.0]
    out, gaps = np.zeros(2), np.arange(12.0).reshape(2, 6)[:, ::2]
    weigh(Numbers(gaps, True, 0.5, 3), Sums(out))
    assert out.tolist() == [0.0, -9.0]
    with pytest.raises(TypeError, match="float32"):
        weigh(Numbers(gaps, True, np.float32(0.5), 3), Sums(out))


def test_only_whole_files_are_read(
    weigh: kept_code.KeptFunction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that lost a byte, or is another, is compiled again; a whole one is read without a compiler."""
    sums(weigh, "float64")
    (file,) = tmp_path.glob("*.o")
    whole = file.read_bytes()
    for damaged in (whole[:-1], b"", b"symbol sum\n", b"\xff"):
        file.write_bytes(damaged)
        assert sums(kept_code.KeptFunction("small_kernel", "weigh"), "float64") == [1.5, -3.0]
        assert file.read_bytes() == whole
    monkeypatch.setitem(sys.modules, "scansnap.runtime.inner_function", None)
    assert sums(kept_code.KeptFunction("small_kernel", "weigh"), "float64") == [1.5, -3.0]


def test_without_a_home_code_is_kept_beside_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path))
    assert list(kept_code._folders())[1:] == [tmp_path / "code"]
    monkeypatch.delenv("SCANSNAP_CACHE")
    monkeypatch.setattr(Path, "home", homeless)
    assert len(list(kept_code._folders())) == 1
