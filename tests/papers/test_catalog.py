"""How papers are found: those of the package by their folders, and nothing outside `papers/` names one."""

from __future__ import annotations

import doctest
import inspect
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss
from scansnap.figures.catalog import own_paper_recipes
from scansnap.systems.catalog import OWN_PAPERS, OWN_SYSTEMS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "scansnap"
NAMES = [package.rpartition(".")[2] for package in OWN_PAPERS]
STAIRS = ROOT / "tests" / "external_paper" / "stairs"


def test_a_folder_is_a_paper_and_needs_no_other_edit(tmp_path: Path) -> None:
    """The external paper's modules in a copy of the source tree: its system, preset, claim and figure are there."""
    shutil.copytree(SOURCE, tmp_path / "scansnap", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "scansnap" / "papers" / "stairs"
    folder.mkdir()
    for path in STAIRS.glob("*.py"):
        text = path.read_text(encoding="utf-8").replace("from stairs", "from scansnap.papers.stairs")
        (folder / path.name).write_text(text, encoding="utf-8")
    code = (
        "import scansnap as ss; from scansnap.cli.system import presets; from scansnap.figures import catalog; "
        "assert presets()['one-fall'][0] == 'linear-attention'; assert catalog.recipe('stairs').name == 'stairs'; "
        "print(ss.verify('stairs_population_loss')[0].verdict, type(ss.SYSTEMS.member('linear-attention')).__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["holds", "scansnap.papers.stairs.system"], done.stderr


def test_every_paper_has_its_parts_and_its_page() -> None:
    for name, package in zip(NAMES, OWN_PAPERS, strict=True):
        for part in ("system", "theory", "claims", "figure"):
            assert inspect.getdoc(import_module(f"{package}.{part}")), (name, part)
        assert (ROOT / "docs" / "systems" / f"{name}.md").exists()
        assert (ROOT / "tests" / "papers" / f"test_{name}.py").exists()


def test_the_lists_of_papers_in_the_documents_are_complete() -> None:
    """README has each paper in its table, by its system's name, and the start page of the documents links its page."""
    readme, index = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/index.md"))
    table = "".join(line for line in readme.splitlines() if line.startswith("|"))
    assert [name for name in NAMES if f"`{name}`" not in table] == []
    assert [name for name in NAMES if f"(systems/{name}.md)" not in index] == []


WORDS = {"next_token", "next-token", "selection", "sinks", "sink"}
"""Names of papers' parts that are also words of the field: these count where they name a system or a package."""


def test_nothing_outside_the_papers_names_one() -> None:
    systems = [type(ss.SYSTEMS.member(name)) for name in OWN_SYSTEMS]
    names = {*NAMES, *OWN_SYSTEMS, *own_paper_recipes(), *(preset for system in systems for preset in system.presets)}
    assert names > WORDS  # a word that is no name any more must not stand there
    plain, words = "|".join(sorted(names - WORDS)), "|".join(sorted(names))
    calls = rf"papers[./]({words})|(member|train|flow|sweep|figure|recipe)\(\"({words})\"|system=\"({words})\""
    pattern = re.compile(rf"(?<![\w.])({plain})(?![\w])|\b({calls})", re.IGNORECASE)
    found = {
        f"{path.relative_to(SOURCE)}: {match[0]}"
        for path in SOURCE.rglob("*")
        if path.suffix in (".py", ".pyi", ".jinja") and path.relative_to(SOURCE).parts[0] != "papers"
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == {"runtime/removed.py: papers.selection"}  # which says where a removed name is now


@pytest.mark.parametrize("package", OWN_PAPERS)
def test_the_examples_run(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(exclude_empty=True)
    ran = 0
    for part in ("system", "theory"):
        module = import_module(f"{package}.{part}")
        for example in finder.find(module, extraglobs={"ss": ss, "np": np}):
            printed: list[str] = []
            ran += len(example.examples)
            assert doctest.DocTestRunner().run(example, out=printed.append).failed == 0, "".join(printed)
    assert ran
