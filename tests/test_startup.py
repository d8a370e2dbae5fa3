"""What commands import: nothing large to say what they are, and no torch where compiled code does the work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LARGE = {"torch", "numba", "xarray", "matplotlib", "scipy", "pandas", "zarr", "rich", "pydantic"}
COMPLETION = {"_SCANSNAP_COMPLETE": "bash_complete", "COMP_WORDS": "scansnap train --l", "COMP_CWORD": "2"}

PROGRAM = """
import sys
from scansnap.cli.app import main
sys.argv[0] = "scansnap"
try:
    main()
finally:
    print("imported:", *sys.modules)
"""

WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Refuse())
from scansnap.cli.app import main

for line in sys.stdin:
    sys.argv = ["scansnap", *line.split()]
    print("$$", line, end="", flush=True)
    try:
        main()
    except SystemExit as stop:
        print("status", stop.code or 0, flush=True)
"""

RULE = """
import scansnap as ss

@ss.OPTIMIZERS.register("mine")
class Mine:
    memory = ()

    def move(self, update): ...
"""


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        ("--help", {*LARGE, "numpy"}),
        ("--version", {*LARGE, "numpy"}),
        ("watch show --help", {*LARGE, "numpy"}),
        ("train --help", LARGE),
        ("verify --help", LARGE),
        ("text train --help", LARGE),
        ("", LARGE),
    ],
)
def test_saying_what_a_command_does_imports_nothing_large(words: str, left_out: set[str], tmp_path: Path) -> None:
    """The last is a shell that completes `train --l`."""
    environment = os.environ if words else {**os.environ, **COMPLETION}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    said, _, imported = done.stdout.rpartition("imported:")
    assert not left_out & set(imported.split())
    assert ({"": "--layers", "--version": "commit"}.get(words, "Usage:")) in said


def without_torch(*commands: str, cwd: Path) -> list[tuple[str, int]]:
    """What each command says, and its status, in a process in which torch cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        input="\n".join(commands) + "\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        check=True,
    )
    said = [part.rpartition("status ") for part in done.stdout.split("$$ ")[1:]]
    return [(words, int(status)) for words, _, status in said]


def test_one_layer_and_its_flow_need_no_torch(tmp_path: Path) -> None:
    switches = "--heads 2 --residual yes --normalization layer --optimizer adam --decoder-gradient modified"
    results = without_torch(
        "train --preset syn-small",
        f"train --preset syn-medium --steps 3 {switches}",
        "flow --preset syn-small",
        "sweep --preset syn-small --lr-y 1,2 --steps 2",
        "train --preset syn-small --steps 2 --record loss,fresh_loss",
        "flow --preset syn-small --times 1,10 --residual yes --decoder-gradient modified",
        "verify lemma_1 theorem_1",
        "figure 9",
        "text classes example",
        cwd=tmp_path,
    )
    assert [status for _, status in results] == [0] * len(results), results
    assert "✓ lemma_1" in results[6][0]


def test_what_needs_torch_says_so(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(RULE)
    results = without_torch(
        "train --preset syn-small --layers 2",
        "train --preset syn-small --device cuda",
        "train --preset syn-small --optimizer mine --from rule.py",
        "figure joma",
        "text train example",
        "watch checkpoints . --probe rule.py",
        cwd=tmp_path,
    )
    for words, status in results:
        assert status == 2
        assert "needs PyTorch, which is not installed here: run pip install '.[torch]' in your clone of" in words
        assert "(without a GPU, read docs/installation.md first)" in words
        assert "Traceback" not in words


def test_a_name_that_needs_torch_says_so(tmp_path: Path) -> None:
    code = WITHOUT_TORCH.partition("from scansnap")[0] + "import scansnap\nscansnap.YZTransformer"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "InputError: scansnap.YZTransformer needs PyTorch" in done.stderr
