"""Processes that are started together on one store: `python -m tests.faults.writers WORK FOLDER ROUNDS PROCESSES`.

Prints how many processes finished with the right numbers, were refused, or did anything else.  This process computes
nothing, so that it can fork.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import scansnap as ss
from tests.faults.works import WORKS, same

FINISHED, REFUSED, WRONG = range(3)


def fork(task: Callable[[], int]) -> int:
    """Run a task in another process, whose status is what the task returns; the process's id."""
    process = os.fork()
    if process == 0:
        try:
            os._exit(task())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(WRONG)
    return process


def status(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main(name: str, folder: Path, rounds: int, processes: int) -> None:
    work, reference = WORKS[name], folder / "numbers"

    def compute() -> int:
        (folder / "whole").mkdir()
        reference.write_bytes(pickle.dumps(work(folder / "whole")))
        return FINISHED

    assert status(fork(compute)) == FINISHED
    expected, ended = pickle.loads(reference.read_bytes()), Counter[int]()

    def task(root: Path, start: int) -> int:
        os.read(start, 1)  # until all are there
        try:
            return FINISHED if same(work(root), expected) else WRONG
        except ss.StoreError as error:
            return REFUSED if "is writing" in str(error) else WRONG

    whole = 0
    for number in range(rounds):
        root = folder / f"{number}"
        root.mkdir()
        read, write = os.pipe()
        children = [fork(lambda root=root, read=read: task(root, read)) for _ in range(processes)]
        os.write(write, b"x" * processes)
        ended.update(map(status, children))
        os.write(write, b"x")
        whole += status(fork(lambda root=root, read=read: task(root, read))) == FINISHED
    print(ended[FINISHED], ended[REFUSED], ended[WRONG], whole)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
