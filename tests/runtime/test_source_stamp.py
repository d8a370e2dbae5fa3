"""A stamp changes with every file that a compiled function depends on, and with no other."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

import scansnap
from scansnap.runtime.source_stamp import source_stamp

KERNEL = "scansnap.dynamics.compiled.training"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    here = Path(scansnap.__file__).parent
    return shutil.copytree(here, tmp_path / "scansnap", ignore=shutil.ignore_patterns("__pycache__"))


def stamp_in(package: Path, module: str) -> int:
    """What the copy's `source_stamp` gives; loaded anew each time, since it remembers who imports whom."""
    spec = importlib.util.spec_from_file_location("stamp_of_copy", package / "base" / "source_stamp.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.source_stamp(module)


def test_equal_sources_have_equal_stamps(copy: Path) -> None:
    assert stamp_in(copy, KERNEL) == source_stamp(KERNEL)
    assert source_stamp(KERNEL) != source_stamp("scansnap.data.sampling")


@pytest.mark.parametrize(
    "changed", ["dynamics/compiled/training.py", "data/compiled_draws.py", "data/binomial.py", "data/random_stream.py"]
)
def test_what_is_imported_through_others_counts(copy: Path, changed: str) -> None:
    before = stamp_in(copy, KERNEL)
    path = copy / changed
    path.write_text(path.read_text() + "\n# changed\n")
    assert stamp_in(copy, KERNEL) != before


def test_what_is_not_imported_does_not_count(copy: Path) -> None:
    before = stamp_in(copy, KERNEL)
    for other in ("dynamics/readout.py", "results/store.py"):
        path = copy / other
        path.write_text(path.read_text() + "\n# changed\n")
    assert stamp_in(copy, KERNEL) == before


def test_a_new_import_is_followed(copy: Path) -> None:
    (copy / "data" / "added.py").write_text("NUMBER = 1\n")
    binomial = copy / "data" / "binomial.py"
    lines = binomial.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("from __future__"))
    lines.insert(first + 1, "from scansnap.data import added\n")
    binomial.write_text("".join(lines))
    before = stamp_in(copy, KERNEL)
    (copy / "data" / "added.py").write_text("NUMBER = 2\n")
    assert stamp_in(copy, KERNEL) != before
