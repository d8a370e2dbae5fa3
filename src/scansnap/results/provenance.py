"""Where a result comes from: versions, commit, machine and time, written into every result."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

FORMAT = 3
"""The layout of results: zarr format 3 with a manifest.  Earlier versions wrote zarr format 2, as 1 and 2."""

PACKAGES = ("scansnap", "numpy", "scipy", "torch", "numba", "xarray", "zarr")


def provenance() -> dict[str, str]:
    """Flat text attributes."""
    versions = {f"version_{name}": version_of(name) for name in PACKAGES}
    return {
        **{name: version for name, version in versions.items() if version},
        "version_python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "commit": commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def store_name(name: str, described: Mapping[str, Any]) -> str:
    """The name of a store: the same for the same work by the same version, so that interrupted work continues."""
    origin = provenance()  # another version makes a different result
    code = {key: origin.get(key) for key in ("version_scansnap", "commit")}
    text = json.dumps({**described, **code}, sort_keys=True, default=str)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.zarr"


@cache
def version_of(name: str) -> str:
    """The version of an installed package; empty if there is none."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and `--help` needs no versions

    try:
        return version(name)
    except PackageNotFoundError:
        return ""


@cache
def commit() -> str:
    """The commit that this package was built from, or of the source tree that it runs from, marked if changed."""
    package = Path(__file__).resolve().parents[1]
    record = package / "origin.json"  # in wheels, by setup.py
    if record.exists():
        known: dict[str, str] = json.loads(record.read_text(encoding="utf-8"))
        return known["commit"]
    root = package.parents[1]
    if not (root / ".git").exists() or not (root / "pyproject.toml").exists():
        return "unknown"

    def git(*words: str) -> str:
        result = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True
        )
        return result.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
