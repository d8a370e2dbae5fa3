"""A shell completes words after the command that docs/installation.md names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli import printed, refusal

BASH = shutil.which("bash")
PROGRAM = Path(sys.executable).with_name("scansnap")

SCRIPT = """
scansnap --install-completion
source ~/.bashrc
for words in "scansnap tr" "scansnap text cl" "scansnap train --pre" "scansnap train --dtype float6"; do
  COMP_WORDS=($words) COMPREPLY=()
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  $(complete -p scansnap | sed 's/.*-F \\([^ ]*\\).*/\\1/') scansnap
  echo "$words: ${COMPREPLY[*]}"
done
"""

PLACES = {
    "bash": (".bash_completions/scansnap.sh", ".bashrc"),
    "zsh": (".zfunc/_scansnap", ".zshrc"),
    "fish": (".config/fish/completions/scansnap.fish", None),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    return tmp_path


@pytest.mark.skipif(BASH is None or not PROGRAM.exists(), reason="needs bash, and the program beside this Python")
def test_bash_completes_what_was_installed(tmp_path: Path) -> None:
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path, "SHELL": str(BASH)}
    done = subprocess.run([str(BASH), "-c", SCRIPT], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "bash completion installed" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-4:] == [
        "scansnap tr: train",
        "scansnap text cl: classes",
        "scansnap train --pre: --preset",
        "scansnap train --dtype float6: float64",
    ]


@pytest.mark.parametrize("shell", PLACES)
def test_a_script_goes_where_its_shell_looks(home: Path, shell: str) -> None:
    """The shell's own file keeps what it has, and loads the script once."""
    script, startup = PLACES[shell]
    if startup is not None:
        (home / startup).write_text("export MINE=1\n")
    for _ in range(2):
        said = printed(f"--install-completion {shell}", cwd=home)
        assert said == f"{shell} completion installed in {home / script}; it takes effect in a new terminal.\n"
    assert printed(f"--show-completion {shell}", cwd=home).strip() == (home / script).read_text().strip()
    assert f"_SCANSNAP_COMPLETE={shell}_complete" in (home / script).read_text()
    if startup is not None:
        lines = (home / startup).read_text().split("\n")
        assert lines[0] == "export MINE=1"
        assert sum(str(home / script) in line or ".zfunc" in line for line in lines) == 1
    assert {path.name for path in home.iterdir()} == {Path(script).parts[0], *([startup] if startup else [])}


def test_the_user_s_shell_is_taken_by_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed("--show-completion", cwd=home).startswith("#compdef scansnap")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "the shell is 'tcsh': name one of bash, zsh, fish" in refusal("--install-completion", cwd=home)
    monkeypatch.delenv("SHELL")
    assert "the environment's SHELL is not set" in refusal("--install-completion", cwd=home)
    assert list(home.iterdir()) == []


def test_completion_does_not_run_the_user_s_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("open('ran', 'w')")
    words = {"COMP_WORDS": "scansnap train --from mine.py --opt", "COMP_CWORD": "4"}
    environment = {**os.environ, **words, "_SCANSNAP_COMPLETE": "bash_complete"}
    command = [sys.executable, "-m", "scansnap"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    assert done.stdout == "plain,--optimizer\n"
    assert not (tmp_path / "ran").exists()
