"""The architecture: which package may import which, no private APIs, and what `import scansnap` costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import scansnap

SOURCE = Path(scansnap.__file__).parent
ORDER = """
    runtime validation storage theory data systems results dynamics claims corpus shortcuts monitor text figures papers
    explorer report cli
"""


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def imports(path: Path) -> set[str]:
    """Every module, and every name of a module, that a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def imported_packages(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("scansnap.")}


def test_imports_go_down_the_list() -> None:
    order = ORDER.split()
    for path in modules():
        allowed = set(order[: order.index(package(path)) + 1])
        assert imported_packages(path) <= allowed, path


def test_files_stay_readable() -> None:
    assert [path for path in modules() if len(path.read_text().splitlines()) > 700] == []


@pytest.mark.parametrize("importer", ["monitor", "corpus", "report/html.py", "report/watch_page.py"])
def test_claims_are_not_imported_by(importer: str) -> None:
    """A watch, a corpus and the parts that all pages share must not load the claims."""
    paths = [path for path in modules() if path.relative_to(SOURCE).as_posix().startswith(importer)]
    assert paths
    assert [path for path in paths if "claims" in imported_packages(path)] == []


PRIVATE = re.compile(r"numba\.core|llvmlite|numba\.extending\.(intrinsic|models|lower|infer)")


def test_no_private_compiler_apis() -> None:
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(PRIVATE.match(name) for name in imports(path))
    }
    assert not users


HEAVY = {"torch", "numba", "xarray", "zarr", "matplotlib", "scipy"}


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("scansnap", {"numpy"} | HEAVY),
        ("scansnap.cli.app", {"numpy", "rich", "pydantic"} | HEAVY),
        ("scansnap.cli.watch", {"numpy", "scansnap.data", "scansnap.results", "scansnap.monitor"} | HEAVY),
        ("scansnap.cli.train", HEAVY - {"scipy"}),
        ("scansnap.figures.catalog", {"scansnap.figures.fig_2"} | HEAVY),
        ("scansnap.report.html", {"scansnap.claims", "scansnap.figures", "scansnap.dynamics"} | HEAVY),
        ("scansnap.report.watch_page", {"scansnap.claims", "scansnap.figures", "scansnap.dynamics", "matplotlib"}),
    ],
)
def test_imports_are_light(module: str, left_out: set[str]) -> None:
    """An import loads what it needs: commands answer `--help` at once, and a watch does not load the claims."""
    code = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert left_out & set(result.stdout.split()) == set()


def test_every_public_name_can_be_had() -> None:
    for name in scansnap.__all__:
        assert getattr(scansnap, name) is not None
    with pytest.raises(AttributeError, match="trane"):
        scansnap.trane  # noqa: B018


def compiled_functions(path: Path) -> set[str]:
    """The names of a file's functions under `njit`."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {f.name for f in functions if any("njit" in ast.unparse(decorator) for decorator in f.decorator_list)}


def test_cached_code_calls_compiled_functions_of_its_own_file_only() -> None:
    """numba compiles cached code anew if its own file changes; changes of other files would go unnoticed."""
    compiled = {
        f"scansnap.{path.relative_to(SOURCE).with_suffix('').as_posix().replace('/', '.')}.{name}"
        for path in modules()
        for name in compiled_functions(path)
    }
    assert compiled
    cached = [path for path in modules() if "njit(cache=True" in path.read_text()]
    assert cached
    for path in cached:
        assert not imports(path) & compiled, path
