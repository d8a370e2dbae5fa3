"""A shell completes commands after the command that docs/installation.md names."""

from __future__ import annotations

import os
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
for words in "scansnap tr" "scansnap text cl" "scansnap train --pre"; do
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
        "scansnap text cl: classes",
        "scansnap train --pre: --preset",
    ]
