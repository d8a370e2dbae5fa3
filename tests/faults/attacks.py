"""What can happen to a store while it is written or afterwards: kills, other writers, damage, power cuts, full disks.

Each attack runs work from the table in `works.py`, runs it again on what was left, and counts what came out.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scansnap as ss
from scansnap.storage import files
from scansnap.storage.folder import CheckedFolder
from tests.faults.hurry import hurry
from tests.faults.power_cut import Tree, cuts, write_tree
from tests.faults.works import WORKS, WRITTEN, Numbers, numbers, outcome, same

ROOT = Path(__file__).parents[2]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
DAMAGES = ("one bit flipped", "truncated", "deleted", "emptied", "a byte appended", "zeros in place of a part")

HURRY = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # as the program does before it imports
from tests.faults.hurry import hurry
hurry(seconds=0.02, packages=(sys.argv.pop(1),))
from scansnap.__main__ import run
run()
"""


def after_kills(folder: Path, name: str, kills: int, seed: int = 0) -> Counter[str]:
    """Kill a command at random moments, and let it end after every third.

    The signals take turns.  "continued" counts the kills that left unfinished work to go on with.
    """
    draw, seen = random.Random(f"{name} {seed}"), Counter[str]()
    environment = {**os.environ, "SCANSNAP_CACHE": str(folder / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])

    def start(store: Path) -> subprocess.Popen[str]:
        words = WORKS[name].command.format(store=store).split()
        program = [sys.executable, "-c", HURRY, WORKS[name].package, *words, "--json"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(program, **pipes, env=environment)

    def finish(store: Path) -> Numbers:
        process = start(store)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        return numbers(ss.load(store))

    finish(folder / "compiled")  # the first may have to compile
    began = time.monotonic()
    expected = finish(folder / "whole")
    seconds, number = time.monotonic() - began, 0
    while seen["kills"] < kills:
        store = folder / f"{number}"
        for _ in range(min(3, kills - seen["kills"])):
            process = start(store)
            try:
                process.communicate(timeout=draw.uniform(0.2, 0.9) * seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(SIGNALS[seen["kills"] % 3])
                _, errors = process.communicate()
                seen["kills"] += 1
                seen["continued"] += store.exists() and any(store.iterdir())
                seen["TRACEBACK"] += "Traceback" in errors
            else:
                seconds *= 0.7  # it ended before: the machine has become faster
                break
        seen["identical" if same(finish(store), expected) else "WRONG NUMBERS"] += 1
        seen["LEFT BEHIND"] += len([path for path in folder.iterdir() if path.name.startswith(".")])
        number += 1
    return +seen


def _write(name: str, root: Path, expected: Numbers) -> str:
    _write.start.wait(120)  # type: ignore[attr-defined]
    return outcome(WRITTEN[name], root, expected, because="is writing")


def together(folder: Path, name: str, rounds: int, processes: int = 4) -> Counter[str]:
    """Start processes together on one store, and then read it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.works"])
    (folder / "whole").mkdir()
    expected, seen = WRITTEN[name](folder / "whole"), Counter[str]()
    with context.Pool(processes, _meet, (context.Barrier(processes),)) as pool:
        for number in range(rounds):
            root = folder / f"{number}"
            root.mkdir()
            seen.update(pool.starmap_async(_write, [(name, root, expected)] * processes, chunksize=1).get(600))
            end = outcome(WRITTEN[name], root, expected)
            seen["then identical" if end == "identical" else f"THEN {end}"] += 1
    return seen


def _meet(start: Any) -> None:
    _write.start = start  # type: ignore[attr-defined]


def damaged(tree: Tree, draw: random.Random) -> tuple[Tree, str]:
    """The folder with one damaged file, and which file has which damage."""
    names = [name for name, data in tree.items() if data is not None]
    arrays = [name for name in names if not Path(name).name.startswith(".")]  # most files describe, few have numbers
    name, kind = draw.choice(arrays if draw.random() < 0.6 and arrays else names), draw.choice(DAMAGES)
    data = bytearray(tree[name] or b"")
    if kind == "deleted":
        return {other: content for other, content in tree.items() if other != name}, f"{name}: {kind}"
    if kind == "emptied" or not data:
        data = bytearray(b"" if data else b"\1")
    elif kind == "truncated":
        del data[draw.randrange(len(data)) :]
    elif kind == "a byte appended":
        data.append(draw.randrange(256))
    elif kind == "one bit flipped":
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    else:
        first = draw.randrange(len(data))
        length = min(len(data) - first, draw.randrange(1, 64))
        data[first : first + length] = bytes(length) if any(data[first : first + length]) else b"\1" * length
    return {**tree, name: bytes(data)}, f"{name}: {kind}"


def _moments(folder: Path, name: str, draws: int, every: int) -> tuple[list[Tree], Numbers]:
    """The folders that power cuts in the midst of a work can leave, the last one whole, and the work's numbers."""
    (folder / "work").mkdir()
    expected: list[Numbers] = []
    trees = cuts(folder / "work", lambda: expected.append(WRITTEN[name](folder / "work")), draws=draws, every=every)
    return trees, expected[0]


def after_damage(folder: Path, name: str, count: int, seed: int = 0) -> Counter[str]:
    """Damage finished and unfinished stores, and do the work again on them."""
    draw, seen = random.Random(seed), Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch.setattr)
        trees, expected = _moments(folder, name, draws=0, every=10)
        patch.setattr("os.fsync", lambda handle: None)  # which takes most of the time
        write_tree(trees[-1], folder / "copy")
        assert outcome(WRITTEN[name], folder / "copy", expected) == "identical"  # without damage
        unfinished = [tree for tree in trees[len(trees) // 4 :] if any(tree.values())]
        for number in range(count):
            broken, what = damaged(trees[-1] if number % 2 else draw.choice(unfinished), draw)
            write_tree(broken, folder / "copy")
            result = outcome(WRITTEN[name], folder / "copy", expected)
            seen[result if result in ("identical", "refused") else f"{result} {what}"] += 1
    return seen


def after_power_cuts(folder: Path, name: str, draws: int, every: int = 1) -> Counter[str]:
    """Cut the power at every n-th moment of the work, and start it again on what is there.

    A kill leaves one of these folders: that in which the disk has everything.
    """
    seen = Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch.setattr)
        trees, expected = _moments(folder, name, draws, every)
        patch.setattr("os.fsync", lambda handle: None)
        for tree in trees:
            write_tree(tree, folder / "copy")
            seen[_continued(outcome(WRITTEN[name], folder / "copy", expected))] += 1
            seen["LEFT BEHIND"] += len(list((folder / "copy").rglob("*.new")))
    return +seen


def _continued(result: str) -> str:
    """The result of work that must be able to continue: a refusal is in capitals too."""
    return "NOT CONTINUED" if result == "refused" else result


class FullDisk:
    """Counts the changes to the disk, and fails at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, fail_at: float) -> None:
        self.count, self._fail_at = 0, fail_at
        changes = ((Path, ("write_bytes", "replace", "unlink")), (files, ("_sync",)), (CheckedFolder, ("write_with",)))
        for owner, names in changes:
            for name in names:
                patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self._fail_at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **kwargs)

        return call


def on_full_disks(folder: Path, name: str, every: int) -> Counter[str]:
    """Fail at every n-th change to the disk, and start the work again; "first" is what the failed work came to."""
    seen = Counter[str]()
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch.setattr)
        patch.setattr("os.fsync", lambda handle: None)
        with patch.context() as whole:
            disk = FullDisk(whole, float("inf"))
            (folder / "whole").mkdir()
            expected = WRITTEN[name](folder / "whole")
        for moment in range(1, disk.count + 1, every):
            root = folder / f"{moment}"
            root.mkdir()
            with patch.context() as failing:
                FullDisk(failing, moment)
                seen[f"first {outcome(WRITTEN[name], root, expected, because='No space left on device')}"] += 1
            seen[_continued(outcome(WRITTEN[name], root, expected))] += 1
    return seen
