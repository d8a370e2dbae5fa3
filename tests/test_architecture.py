"""The shape of the house: who may import whom, and what `import scansnap` costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scansnap

SOURCE = Path(scansnap.__file__).parent
ORDER = (
    "runtime",
    "validation",
    "storage",
    "theory",
    "data",
    "systems",
    "results",
    "dynamics",
    "claims",
    "corpus",
    "shortcuts",
    "monitor",
    "text",
    "figures",
    "explorer",
    "report",
    "cli",
)


def modules() -> list[Path]:
    # kept_code and triton_flow go with the compiled engines
    going = ("kept_code.py", "triton_flow.py")
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE and path.name not in going)


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


def imported_rooms(path: Path) -> set[str]:
    result = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "scansnap" else [f"scansnap.{a.name}" for a in node.names]
        result |= {name.split(".")[1] for name in names if name.startswith("scansnap.")}
    return result


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_the_list(path: Path) -> None:
    allowed = set(ORDER[: ORDER.index(room(path)) + 1])
    assert imported_rooms(path) <= allowed


def test_the_order_names_every_room() -> None:
    assert {room(path) for path in modules()} <= set(ORDER)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600


def test_import_is_light() -> None:
    heavy = "{'torch', 'numba', 'xarray', 'zarr', 'matplotlib', 'scipy'}"
    code = f"import sys, scansnap; scansnap.InputError; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_public_name_can_be_had() -> None:
    for name in scansnap.__all__:
        assert getattr(scansnap, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trane'"):
        scansnap.trane  # noqa: B018
