"""Where a package comes from: the commit in sdists and wheels, and the links of its page."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from scansnap.storage import provenance

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    """The build's own program."""
    pytest.importorskip("setuptools")
    spec = importlib.util.spec_from_file_location("setup_of_the_build", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *author, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a package in it, of one commit."""
    (tmp_path / "src" / "scansnap" / "storage").mkdir(parents=True)
    for name in ("pyproject.toml", "src/scansnap/storage/provenance.py"):
        (tmp_path / name).write_text("")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def commit_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a package would say whose storage/provenance.py is in `folder`."""
    monkeypatch.setattr(provenance, "__file__", str(folder / "storage" / "provenance.py"))
    return provenance.commit.__wrapped__()


def test_a_build_records_its_commit_and_address(setup, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCANSNAP_REPOSITORY", raising=False)
    head = git(tree, "rev-parse", "HEAD").strip()
    assert setup.origin(tree) == {"commit": head, "repository": ""}
    git(tree, "remote", "add", "origin", "git@example.org:group/scansnap.git")
    assert setup.origin(tree) == {"commit": head, "repository": "https://example.org/group/scansnap"}
    (tree / "pyproject.toml").write_text("# changed")
    monkeypatch.setenv("SCANSNAP_REPOSITORY", "https://example.org/elsewhere/")
    assert setup.origin(tree) == {"commit": f"{head}+changes", "repository": "https://example.org/elsewhere"}
    (tree / "src" / setup.RECORD).write_text(json.dumps({"commit": "c", "repository": ""}))  # an unpacked sdist
    assert setup.origin(tree) == {"commit": "c", "repository": ""}
    assert setup.origin(tree / "src") == {"commit": "unknown", "repository": "https://example.org/elsewhere"}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://example.org/a/b.git", "https://example.org/a/b"),
        ("ssh://git@example.org/a/b", "https://example.org/a/b"),
        ("/home/me/scansnap", ""),
        ("", ""),
    ],
)
def test_addresses_for_browsers(setup, address: str, expected: str) -> None:
    assert setup.web_address(address) == expected


def test_links_of_the_page_lead_into_the_repository(setup) -> None:
    text = "![a\nb](docs/i.png) [c](docs/d.md#e) [f](https://g.org/h) [i](#j)"
    assert setup.page_text(text, "https://example.org/s", "123+changes") == (
        "![a\nb](https://example.org/s/raw/123/docs/i.png) [c](https://example.org/s/blob/123/docs/d.md#e) "
        "[f](https://g.org/h) [i](#j)"
    )
    assert setup.page_text(text, "", "123") == text
    readme = setup.page_text((ROOT / "README.md").read_text(), "https://example.org/s", "123")
    assert "](docs/" not in readme
    assert "https://example.org/s/raw/123/docs/images/scan-and-snap.png" in readme


def test_an_installed_package_knows_its_own_commit(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also below another repository, as in an environment in a user's project."""
    head = git(tree, "rev-parse", "HEAD").strip()
    assert commit_of(tree / "src" / "scansnap", monkeypatch) == head
    (tree / "src" / "scansnap" / "new.py").write_text("")
    assert commit_of(tree / "src" / "scansnap", monkeypatch) == f"{head}+changes"
    installed = tree / ".venv" / "lib" / "site-packages" / "scansnap"
    installed.mkdir(parents=True)
    assert commit_of(installed, monkeypatch) == "unknown"
    (installed / "origin.json").write_text(json.dumps({"commit": "abc", "repository": ""}))
    assert commit_of(installed, monkeypatch) == "abc"
