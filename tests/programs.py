"""Programs of the documents, each in a process of its own in which the libraries are imported already.

Most of the time of a short program is spent on imports.  So one process imports what most programs use, which starts no
threads, and forks for each of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SECONDS = 300
"""How long a program may take."""

PARENT = f"""
import json, os, signal, sys
import torch
import scansnap as ss
ss.train, ss.flow, ss.sweep, ss.verify, ss.train_text, ss.plot

for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm({SECONDS})
        os.chdir(job["folder"])
        for stream, target in enumerate((os.devnull, job["out"], job["err"])):
            os.dup2(os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv, sys.path[0] = job["argv"], job["beside"]
        exec(compile(job["code"], "<string>", "exec"), {{"__name__": "__main__"}})
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Programs:
    """Runs programs; `folder` is for what they print."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parent = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, code: str, folder: Path, words: Sequence[str] = (), beside: Path | None = None) -> tuple[str, str]:
        """What a program that must succeed prints, on both streams; it can import the modules `beside` it."""
        out, err = self._folder / "out", self._folder / "err"
        job = {"code": code, "argv": ["-c", *words], "folder": str(folder), "out": str(out), "err": str(err)}
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        print(json.dumps({**job, "beside": str(beside or "")}), file=self._parent.stdin, flush=True)
        status = self._parent.stdout.readline().strip()
        assert status == "0", (status, code, words, err.read_text())
        return out.read_text(), err.read_text()

    def close(self) -> None:
        self._parent.communicate()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """One parent for all programs of a worker."""
    parent = Programs(tmp_path_factory.mktemp("programs"))
    yield parent
    parent.close()
