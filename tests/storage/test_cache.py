"""A cached folder is complete or written again, even with other processes at work."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.storage.cache import cache_folder, cached_folder
from scansnap.storage.folder import LOCK, MANIFEST, is_intact


class Filler:
    """Writes two files, and counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "a.bin").write_bytes(b"0123456789")
        (folder / "inner").mkdir()
        (folder / "inner" / "b.txt").write_text("text")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SCANSNAP_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for variable, expected in (("", tmp_path / ".cache"), (str(tmp_path / "xdg"), tmp_path / "xdg")):
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
        assert cache_folder() == expected / "scansnap"


def test_a_folder_is_written_once(cache: Path) -> None:
    fill = Filler()
    folder = cached_folder("kind", "key", fill)
    assert folder == cache / "kind" / "key"
    assert cached_folder("kind", "key", fill) == folder
    assert fill.calls == 1
    cached_folder("kind", "other", fill)
    assert fill.calls == 2


def test_a_file_in_place_of_the_folder_is_replaced(cache: Path) -> None:
    """Other damage is done by `tests/faults`."""
    folder = cached_folder("kind", "key", Filler())
    folder.rename(folder.with_name("away"))
    folder.write_text("not a folder")
    assert is_intact(cached_folder("kind", "key", Filler()))


def test_a_failure_leaves_nothing_behind(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("made")
        raise ss.InputError("no")

    with pytest.raises(ss.InputError, match="no"):
        cached_folder("kind", "key", fail)
    assert [path.name for path in (cache / "kind" / "key").iterdir()] == [LOCK]


def test_what_a_killed_process_leaves_is_removed(cache: Path) -> None:
    class Killed(BaseException):
        pass

    def die(folder: Path) -> None:
        (folder / "half").write_text("made")
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scansnap.storage.cache.empty_folder", lambda folder: None)
        with pytest.raises(Killed):
            cached_folder("kind", "key", die)
    folder = cached_folder("kind", "key", Filler())
    assert sorted(path.name for path in folder.iterdir()) == [LOCK, "a.bin", "inner", MANIFEST]


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "file"))
    with pytest.raises(ss.StoreError, match=r"cannot write .*: .+; set \$SCANSNAP_CACHE to a writable folder"):
        cached_folder("kind", "key", Filler())

    def run_out_of_space(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path))
    with pytest.raises(ss.StoreError, match=r"No space left on device; set \$SCANSNAP_CACHE"):
        cached_folder("kind", "key", run_out_of_space)


def test_of_many_writers_the_first_wins_and_all_get_the_same(cache: Path) -> None:
    def fill(folder: Path) -> None:
        time.sleep(0.02)
        Filler()(folder)

    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: cached_folder("kind", "key", fill), range(8)))
    assert set(folders) == {cache / "kind" / "key"}
    assert is_intact(folders[0])
    assert [path.name for path in (cache / "kind").iterdir()] == ["key"]
