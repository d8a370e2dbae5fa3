"""A shell completes commands after the command that docs/installation.md names."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = shutil.which("bash")
PROGRAM = Path(sys.executable).with_name("scansnap")

SCRIPT = """
scansnap --install-completion
source ~/.bashrc
for words in "scansnap tr" "scansnap corpus cl" "scansnap train --pre"; do
  COMP_WORDS=($words)
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  $(complete -p scansnap | sed 's/.*-F \\([^ ]*\\).*/\\1/') scansnap
  echo "$words: ${COMPREPLY[*]}"
done
"""


@pytest.mark.skipif(BASH is None or not PROGRAM.exists(), reason="needs bash, and the program beside this Python")
def test_bash_completes_what_was_installed(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([str(BASH), "-c", SCRIPT], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "bash completion installed" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "scansnap tr: train",
        "scansnap corpus cl: classes",
        "scansnap train --pre: --preset",
    ]


def test_completion_is_quick() -> None:
    """Less than 0.3 s of processor time; the least of three, as the first may compile modules."""
    words = {"_SCANSNAP_COMPLETE": "complete_bash", "COMP_WORDS": "scansnap tr", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "import sys; sys.argv = ['scansnap']; from scansnap.cli.app import main; main()"]

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **words})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.stdout.split() == ["train"]
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.3
