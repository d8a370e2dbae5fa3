"""What a build knows and pyproject.toml cannot: the commit that it is made from, and the address of the repository.

Both are written to `scansnap/origin.json` in the sdist and in the wheel, never in the source tree, so that results of
an installed package name their commit without git.  The address is SCANSNAP_REPOSITORY, or that of the remote `origin`.
With it the package's page has links, and the README's links there lead to the repository at this commit.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
RECORD = Path("scansnap", "origin.json")


def origin(root: Path) -> dict[str, str]:
    """The commit, marked if files have changed since, and the address; as recorded if this is an unpacked sdist."""
    record = root / "src" / RECORD
    if record.exists():
        known: dict[str, str] = json.loads(record.read_text(encoding="utf-8"))
        return known
    changes = git(root, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": (git(root, "rev-parse", "HEAD") or "unknown") + ("+changes" if changes else ""),
        "repository": web_address(os.environ.get("SCANSNAP_REPOSITORY") or git(root, "remote", "get-url", "origin")),
    }


def git(root: Path, *words: str) -> str:
    """What git answers; nothing where the folder is no repository of its own."""
    if not (root / ".git").exists():
        return ""
    try:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def web_address(address: str) -> str:
    """An address for browsers, or nothing: git@host:owner/name.git is https://host/owner/name."""
    address = re.sub(r"^(?:ssh://)?git@([^:/]+)[:/]", r"https://\1/", address.strip()).removesuffix(".git").rstrip("/")
    return address if address.startswith("https://") else ""


def page_text(readme: str, repository: str, commit: str) -> str:
    """The README with links into the repository, for pages elsewhere."""

    def absolute(link: re.Match[str]) -> str:
        is_image, text, target = link.groups()
        kind = "raw" if is_image else "blob"
        return f"{is_image}[{text}]({repository}/{kind}/{commit.removesuffix('+changes')}/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)", absolute, readme) if repository else readme


def write_record(package_root: Path) -> None:
    """Write the record into the package below `package_root`."""
    (package_root / RECORD).write_text(json.dumps(origin(ROOT)) + "\n", encoding="utf-8")


class BuildWithRecord(build_py):
    """Writes the record beside the copied modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_record(Path(self.build_lib))


class SdistWithRecord(sdist):
    """Writes the record into the tree that is packed."""

    def make_release_tree(self, base_dir: str, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        record = Path(base_dir, "src", RECORD)
        record.unlink(missing_ok=True)  # it may be a hard link
        write_record(Path(base_dir, "src"))


if __name__ == "__main__":
    known = origin(ROOT)
    urls = {"Repository": "", "Documentation": "/blob/HEAD/docs/index.md", "Changelog": "/blob/HEAD/CHANGELOG.md"}
    setup(
        cmdclass={"build_py": BuildWithRecord, "sdist": SdistWithRecord},
        long_description=page_text((ROOT / "README.md").read_text(encoding="utf-8"), **known),
        long_description_content_type="text/markdown",
        project_urls={name: known["repository"] + path for name, path in urls.items()} if known["repository"] else {},
    )
