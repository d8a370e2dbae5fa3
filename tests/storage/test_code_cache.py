"""Compiled code is not loaded from folders that other users can write to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from scansnap.storage import code_cache

PROGRAM = "import scansnap.data.sampling as s; print(s.choose.stats.cache_path)"


@pytest.mark.parametrize(
    ("mode", "owner", "group", "private"),
    [
        (0o755, 0, 0, True),
        (0o775, 0, 0, True),
        (0o775, 0, 7, False),
        (0o777, 0, 0, False),
        (0o1777, 0, 0, False),
        (0o755, 7, 0, False),
    ],
)
def test_a_folder_is_private(tmp_path: Path, monkeypatch, mode: int, owner: int, group: int, private: bool) -> None:
    """With owner and group relative to this process's own."""
    status = list(tmp_path.stat())
    status[0], status[4], status[5] = mode, os.geteuid() + owner, os.getegid() + group
    monkeypatch.setattr(Path, "stat", lambda path: os.stat_result(status))
    assert code_cache.is_private(tmp_path) == private


@pytest.mark.parametrize("inner", ["", "data_0"])
def test_nothing_is_loaded_from_a_folder_that_others_can_write_to(tmp_path: Path, inner: str) -> None:
    shared, cache = tmp_path / "shared", tmp_path / "cache"
    (shared / "data_0").mkdir(parents=True)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(shared), "SCANSNAP_CACHE": str(cache)}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)

    done = run()
    assert Path(done.stdout.strip()).is_relative_to(shared)
    assert done.stderr == ""
    (shared / inner).chmod(0o777)
    done = run()
    assert Path(done.stdout.strip()).is_relative_to(cache / "compiled")
    assert f"other users can write to {shared / inner}, so compiled code is not loaded from there" in done.stderr


def test_a_cache_that_is_shared_too_gives_a_new_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "compiled").mkdir(parents=True)
    (tmp_path / "cache" / "compiled").chmod(0o777)
    tmp_path.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="kept in .*scansnap-compiled-"):
        code_cache.use_private_cache()
    assert code_cache.is_private(Path(numba.config.CACHE_DIR))
