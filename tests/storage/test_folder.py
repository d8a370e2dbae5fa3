"""Checked folders: what was committed is there, whole, whatever happens to the process or to the bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.storage import files
from scansnap.storage import folder as store_folder
from scansnap.storage.files import DamagedFile, atomic_write, checksummed_json, read_checksummed_json
from scansnap.storage.folder import (
    LOCK,
    MANIFEST,
    CheckedFolder,
    StoreLock,
    is_intact,
    is_new,
    write_folder,
)


@pytest.fixture
def folder(tmp_path: Path) -> CheckedFolder:
    folder = CheckedFolder(tmp_path / "store")
    with folder.locked():
        folder.write("a", b"first")
        folder.write("part/b", b"second")
        folder.commit({"kind": "test"})
    return folder


def contents(root: Path) -> dict[str, bytes | None]:
    folder = CheckedFolder(root)
    return {name: folder.read(name) for name in folder.files}


def test_what_is_committed_is_there(folder: CheckedFolder) -> None:
    again = CheckedFolder(folder.root)
    assert again.committed
    assert again.info == {"kind": "test"}
    assert contents(folder.root) == {"a": b"first", "part/b": b"second"}
    assert again.read("none") is None
    assert again.condition().damaged == {"part": [], "the store": []}
    assert not folder.leftovers()


def test_what_is_staged_counts_after_the_commit(folder: CheckedFolder) -> None:
    with folder.locked():
        folder.write("a", b"changed")
        folder.remove("part/b")
        folder.write_with("c", lambda file: file.write(b"third"))
        assert folder.read("a") == b"changed"
        assert sorted(folder.names()) == ["a", "c"]
        assert contents(folder.root) == {"a": b"first", "part/b": b"second"}
        folder.commit()
    assert contents(folder.root) == {"a": b"changed", "c": b"third"}
    assert CheckedFolder(folder.root).info == {"kind": "test"}


def test_an_error_discards_what_is_staged(folder: CheckedFolder, tmp_path: Path) -> None:
    """A folder to which nothing was committed is removed."""

    def fail(target: CheckedFolder) -> None:
        with target.locked():
            target.write("a", b"changed")
            target.write("inner/x", b"new")
            raise KeyError

    for target in (folder, CheckedFolder(tmp_path / "new")):
        with pytest.raises(KeyError):
            fail(target)
    assert contents(folder.root) == {"a": b"first", "part/b": b"second"}
    assert not folder.leftovers()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("moved", [False, True])
def test_a_commit_that_was_cut_short_is_finished(folder: CheckedFolder, monkeypatch, moved: bool) -> None:
    """The manifest names the new files, of which none or some are renamed; readers find them, and a writer renames."""
    replace, left = Path.replace, [1 + moved]

    def dies(path: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return replace(path, target)

    folder.lock()
    folder.write("a", b"changed")
    folder.write("c", b"third")
    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        folder.commit()
    monkeypatch.undo()
    folder.unlock()
    expected = {"a": b"changed", "part/b": b"second", "c": b"third"}
    assert contents(folder.root) == expected
    again = CheckedFolder(folder.root)
    assert again.condition().is_intact
    with again.locked():
        assert not again.leftovers()
    assert contents(folder.root) == expected


def test_what_a_killed_writer_had_staged_is_removed(folder: CheckedFolder) -> None:
    """Its new version of a committed file too."""
    (folder.root / "a.new").write_bytes(b"not committed")
    (folder.root / "c.new").write_bytes(b"not committed")
    with folder.locked():
        assert not folder.leftovers()
    assert contents(folder.root) == {"a": b"first", "part/b": b"second"}


def test_every_flipped_bit_shows(folder: CheckedFolder) -> None:
    for name in ("a", MANIFEST):
        path = folder.root / name
        data = path.read_bytes()
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            assert not is_intact(folder.root)
        path.write_bytes(data)
    assert is_intact(folder.root)


@pytest.mark.parametrize("name", ["a", "part/b", MANIFEST])
def test_a_missing_file_shows(folder: CheckedFolder, name: str) -> None:
    (folder.root / name).unlink()
    assert not is_intact(folder.root)
    assert not is_new(folder.root)
    folder = CheckedFolder(folder.root)
    with pytest.raises(ss.StoreError, match=r"is missing; scansnap check|is not a scansnap store"):
        (folder.refuse_damage if folder.committed else folder.lock)()


@pytest.mark.parametrize(
    "change", [{"info": 3}, {"files": 3}, {"files": {"a": "x"}}, {"files": {"../x": [1, 2]}}, {"files": {"/x": [1, 2]}}]
)
def test_a_forged_manifest_is_refused(folder: CheckedFolder, change: dict[str, object]) -> None:
    content = read_checksummed_json((folder.root / MANIFEST).read_bytes())
    (folder.root / MANIFEST).write_bytes(checksummed_json({**content, **change}))
    with pytest.raises(ss.StoreError, match=r"its manifest, manifest\.json, was not written by scansnap"):
        CheckedFolder(folder.root)


def test_checksummed_json_needs_its_checksum() -> None:
    data = checksummed_json({"a": [1, 2.5], "b": {"c": "d"}})
    assert read_checksummed_json(data) == {"a": [1, 2.5], "b": {"c": "d"}}
    with pytest.raises(DamagedFile):
        read_checksummed_json(b'{"a": 1}')


def test_a_whole_folder_is_written_again(tmp_path: Path) -> None:
    root, calls = tmp_path / "model", []

    def write(folder: Path) -> dict[str, int]:
        calls.append(len(calls))
        (folder / "inner").mkdir(exist_ok=True)
        (folder / "inner" / "x").write_bytes(b"y")
        return {"calls": len(calls)}

    for keep in (False, True, False):
        write_folder(root, write, keep_intact=keep)
    assert calls == [0, 1]
    assert CheckedFolder(root).info == {"calls": 2}
    assert contents(root) == {"inner/x": b"y"}


# --- locks --------------------------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from scansnap.storage.folder import StoreLock
lock = StoreLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "r.zarr"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ss.StoreError, match=r"another process is writing .*: wait for it"):
        StoreLock(path).acquire()
    holder.kill()
    holder.wait()
    holder.stdout.close()
    lock = StoreLock(path)
    lock.acquire()
    with pytest.raises(ss.StoreError, match=r"this process is writing .*: close what this process opened"):
        StoreLock(path).acquire()
    lock.release()
    StoreLock(path).acquire()


def test_a_store_is_recognized_during_its_first_commit(tmp_path: Path, monkeypatch) -> None:
    def commits_meanwhile(root: Path) -> bool:
        monkeypatch.undo()
        with first.locked():
            first.write("a", b"data")
            first.commit()
        return False

    (tmp_path / "store").mkdir()
    first, second = CheckedFolder(tmp_path / "store"), CheckedFolder(tmp_path / "store")
    monkeypatch.setattr("scansnap.storage.folder.is_new", commits_meanwhile)
    with second.locked():
        assert second.read("a") == b"data"


def test_a_folder_is_new_while_others_make_and_remove_it(tmp_path: Path) -> None:
    """Some thousand looks at a folder that appears and disappears."""
    root, done = tmp_path / "store", threading.Event()

    def make_and_remove() -> None:
        while not done.is_set():
            (root / "loss").mkdir(parents=True)
            shutil.rmtree(root)

    other = threading.Thread(target=make_and_remove)
    other.start()
    try:
        assert all(is_new(root) for _ in range(5000))
    finally:
        done.set()
        other.join()


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("precious")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / LOCK).symlink_to(tmp_path / "notes")
    with pytest.raises(ss.StoreError, match=r"cannot write"):
        StoreLock(tmp_path / "store").acquire()
    assert (tmp_path / "notes").read_text() == "precious"


def test_an_atomic_write_fails_without_a_trace(tmp_path: Path, monkeypatch) -> None:
    atomic_write(tmp_path / "x", b"old")

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space"):
        atomic_write(tmp_path / "x", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_result_is_saved_under_the_rules_of_windows(tmp_path: Path, monkeypatch) -> None:
    """Folders cannot be opened there, and only a file that is open for writing can be synced."""
    real_open, real_fsync, read_only = os.open, os.fsync, set()

    def opened(path: Path, flags: int, *more: int, **options: int) -> int:
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied")
        handle = real_open(path, flags, *more, **options)
        (read_only.discard if flags & (os.O_RDWR | os.O_WRONLY) else read_only.add)(handle)
        return handle

    def fsync(handle: int) -> None:
        if handle in read_only:
            raise OSError(9, "Bad file descriptor")
        real_fsync(handle)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", fsync)
    run = ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=2)
    with pytest.raises(ss.StoreError, match="cannot write"):
        ss.save(run, tmp_path / "posix.zarr")
    monkeypatch.setattr(files, "IS_WINDOWS", True)
    ss.save(run, tmp_path / "windows.zarr")
    assert ss.load(tmp_path / "windows.zarr").identical(run)


def test_an_unused_folder_is_removed_under_the_rules_of_windows(tmp_path: Path, monkeypatch) -> None:
    """A lock that is held cannot be removed there, nor can its folder; filelock removes it when it releases it."""
    real_rmtree, real_release = shutil.rmtree, StoreLock.release

    def rmtree(root: Path, **options: bool) -> None:
        for path in root.iterdir():
            if path.is_dir():
                real_rmtree(path, **options)
            elif path.name != LOCK:
                path.unlink()

    def release(self: StoreLock) -> None:
        real_release(self)
        (tmp_path / "unused" / LOCK).unlink(missing_ok=True)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    monkeypatch.setattr(StoreLock, "release", release)
    for is_windows in (False, True):
        monkeypatch.setattr(store_folder, "IS_WINDOWS", is_windows)
        folder = CheckedFolder(tmp_path / "unused")
        folder.lock()
        folder.unlock()
        assert (tmp_path / "unused").exists() is not is_windows


def test_a_store_leaves_the_files_beside_it_alone(tmp_path: Path) -> None:
    """A store called poetry beside the user's poetry.lock, and one beside a link called X.lock."""
    (tmp_path / "poetry.lock").write_text("precious")
    (tmp_path / "notes").write_text("precious")
    (tmp_path / "X.lock").symlink_to(tmp_path / "notes")
    run = ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=2, store=tmp_path / "poetry")
    ss.save(run, tmp_path / "X")
    ss.save(run, tmp_path / "X", overwrite=True)
    assert (tmp_path / "poetry.lock").read_text() == (tmp_path / "notes").read_text() == "precious"
    assert (tmp_path / "X.lock").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X", "X.lock", "notes", "poetry", "poetry.lock"]
