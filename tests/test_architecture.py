"""The architecture: which package may import which, no private APIs, and what `import scansnap` costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import scansnap

SOURCE = Path(scansnap.__file__).parent
ORDER = """
    runtime validation storage theory data systems results dynamics claims monitor text figures papers
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


FOUNDATIONS = {"runtime", "validation", "storage"}
"""The packages that the laboratory and the watch share."""

WATCH_PARTS = ("monitor", "report/watch_page.py", "report/html.py")

WATCH_DISTRIBUTIONS = {"torch", "numpy", "xarray", "zarr", "filelock"}
"""What a watch needs, besides the standard library."""

OPTIONAL_DISTRIBUTIONS = {
    "rich": "live maps in a terminal",
    "jinja2": "pages",
    "PIL": "pictures on pages",
    "matplotlib": "pictures on pages",
    "latex2mathml": "formulas on pages",
    "markupsafe": "formulas on pages",
    "threadpoolctl": "threads of linear algebra",
    "transformers": "checkpoints and the Trainer",
    "lightning": "the callback for Lightning",
}
"""What only some parts of the watch import."""


def path_of(module: str) -> Path | None:
    """The file of a module of the package, or None for a name inside one."""
    stem = SOURCE.joinpath(*module.split(".")[1:])
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.exists()), None)


def closure(paths: Iterable[Path]) -> set[Path]:
    """The files and all that they import from the package, also inside functions."""
    found: set[Path] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        inner = (path_of(name) for name in imports(path) if name.startswith("scansnap."))
        waiting += [path for path in inner if path is not None]
    return found


def watch_files() -> set[Path]:
    roots = [path for path in modules() if path.relative_to(SOURCE).as_posix().startswith(WATCH_PARTS)]
    assert len(roots) > 20
    return closure(roots)


def test_a_watch_imports_nothing_of_the_laboratory() -> None:
    allowed = FOUNDATIONS | {"monitor"}
    strangers = {path for path in watch_files() if package(path) not in allowed}
    pages = {SOURCE / "report" / name for name in ("__init__.py", "html.py", "watch_page.py")}
    assert strangers <= pages
    assert imported_packages(SOURCE / "cli" / "watch.py") <= allowed | {"report", "cli"}


def test_a_watch_needs_few_distributions() -> None:
    names = {name.split(".")[0] for path in watch_files() for name in imports(path)}
    foreign = names - set(sys.stdlib_module_names) - {"scansnap"}
    assert foreign == WATCH_DISTRIBUTIONS | OPTIONAL_DISTRIBUTIONS.keys()


def test_files_stay_readable() -> None:
    assert [path for path in modules() if len(path.read_text().splitlines()) > 700] == []


def test_a_corpus_does_not_import_the_claims() -> None:
    paths = [path for path in modules() if package(path) == "text"]
    assert paths
    assert [path for path in paths if "claims" in imported_packages(path)] == []


def test_a_class_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


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
