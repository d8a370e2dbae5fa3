"""Power cuts, as far as they can be had without pulling a plug.

A `Tape` follows a folder while a program writes there, and knows at each moment what a disk must keep and what it may
lose.  A file's bytes are on the disk when the file was synced, and a name when its folder was.  Until then the disk may
have, of a file, its synced bytes, its new ones, a beginning of them or none; and, of the changes to a folder, any
number of the first ones, in the order in which they were made, which file systems with a journal keep in a folder.  A
rename takes effect whole; the package renames only within a folder.

Syncs and renames are noticed as they are called, from Python; what was written between two of them, by whatever code,
is found by looking at the folder.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Tree = dict[str, bytes | None]
"""The files of a folder by their paths, with None for folders."""


@dataclass
class File:
    """A file: its bytes, and those that the disk has."""

    inode: int
    data: bytes = b""
    synced: bytes = b""

    def versions(self) -> list[bytes]:
        """What may be there after a power cut."""
        if self.data == self.synced:
            return [self.data]
        return [self.synced, b"", self.data[: len(self.data) // 2], self.data]


Change = dict[str, "File | Folder | None"]
"""A change of names in a folder, which takes effect whole: each name gets a node, or with None is gone."""


@dataclass
class Folder:
    """A folder: its names, those that the disk has, and the changes between the two."""

    inode: int
    names: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        """Change names, which the disk does not have yet."""
        self.changes.append(change)
        _apply(self.names, change)


Node = File | Folder


def _apply(names: dict[str, Node], change: Change) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Tape:
    """What happens to a folder."""

    def __init__(self, root: Path) -> None:
        self._path = root
        self._root = Folder(root.stat().st_ino)
        self._turn = threading.RLock()
        self._look(root, self._root)
        for path in [root, *root.rglob("*")]:  # what was there before is on the disk
            self._sync(path)

    @contextmanager
    def following(self, at_each: Callable[[], None]) -> Iterator[None]:
        """Follow the folder, with a call before each sync and each rename."""

        def before(path: Path | None) -> bool:
            is_inside = path is not None and path.is_relative_to(self._path)
            if is_inside:
                self._look(self._path, self._root)
                at_each()
            return is_inside

        def fsync(handle: int) -> None:
            path = Path(f"/proc/self/fd/{handle}").readlink()
            with self._turn:
                if before(path):
                    self._sync(path)

        def renaming(real: Callable[..., Any]) -> Callable[..., Any]:
            def rename(source: Any, target: Any, **words: Any) -> None:
                first, second = (Path(path).absolute() for path in (source, target))
                with self._turn:
                    is_inside = before(first)
                    real(source, target, **words)
                    if is_inside:
                        self._rename(first, second)

            return rename

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            patch.setattr(os, "rename", renaming(os.rename))
            patch.setattr(os, "replace", renaming(os.replace))
            yield
        self._look(self._path, self._root)

    def _look(self, path: Path, folder: Folder) -> None:
        """Note what has changed since the last look."""
        with self._turn:
            there = {entry.name: entry for entry in os.scandir(path)}
            for name in [name for name in folder.names if name not in there]:
                folder.change({name: None})
            for name, entry in sorted(there.items()):
                node = folder.names.get(name)
                if node is None or node.inode != entry.inode() or isinstance(node, Folder) != entry.is_dir():
                    node = Folder(entry.inode()) if entry.is_dir() else File(entry.inode())
                    folder.change({name: node})
                if isinstance(node, Folder):
                    self._look(Path(entry.path), node)
                else:
                    node.data = Path(entry.path).read_bytes()

    def _rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent
        folder = self._node(source.parent)
        assert isinstance(folder, Folder)
        folder.change({source.name: None, target.name: folder.names[source.name]})

    def _sync(self, path: Path) -> None:
        node = self._node(path)
        if isinstance(node, File):
            node.synced = node.data
        else:
            node.synced, node.changes = dict(node.names), []

    def _node(self, path: Path) -> Node:
        node: Node = self._root
        for part in path.relative_to(self._path).parts:
            assert isinstance(node, Folder)
            node = node.names[part]
        return node

    def after_a_cut(self, draw: random.Random | None, *, changes: bool = False, data: int = 0) -> Tree:
        """The folder after a power cut now.

        Drawn, or else with all unsynced changes of names or none, and of files that were not synced the version `data`.
        """
        tree: Tree = {}

        def fill(folder: Folder, prefix: str) -> None:
            names = dict(folder.synced)
            count = len(folder.changes) if changes else 0
            if draw is not None:
                count = draw.randint(0, len(folder.changes))
            for change in folder.changes[:count]:
                _apply(names, change)
            for name, node in names.items():
                if isinstance(node, Folder):
                    tree[prefix + name] = None
                    fill(node, f"{prefix}{name}/")
                else:
                    versions = node.versions()
                    tree[prefix + name] = draw.choice(versions) if draw else versions[min(data, len(versions) - 1)]

        fill(self._root, "")
        return tree


def write_tree(tree: Tree, root: Path) -> None:
    """Make the folder as it was."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name, data in tree.items():
        if data is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(data)


def cuts(root: Path, work: Callable[[], object], *, draws: int, every: int = 1, seed: int = 0) -> list[Tree]:
    """The different folders that power cuts in the midst of this work can leave.

    Before every sync or rename, or every n-th of them, and at the end: the least and the most that the disk may
    have, files empty or cut short, and drawn ones.
    """
    draw = random.Random(seed)
    trees: dict[tuple[tuple[str, bytes | None], ...], Tree] = {}
    tape = Tape(root)
    moments = itertools.count()

    def note(*, is_end: bool = False) -> None:
        if next(moments) % every and not is_end:
            return
        ways = [tape.after_a_cut(None), *(tape.after_a_cut(None, changes=True, data=k) for k in range(4))]
        for tree in [*ways, *(tape.after_a_cut(draw) for _ in range(draws))]:
            trees.setdefault(tuple(sorted(tree.items())), tree)

    with tape.following(note):
        work()
    note(is_end=True)
    return list(trees.values())
