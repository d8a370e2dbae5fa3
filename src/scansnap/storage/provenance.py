"""The attributes that every result carries: kind, format, options, versions, commit, machine and time."""

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

RESULT_FORMAT = 3
"""The layout of results: zarr format 3 with a manifest.  Earlier versions wrote zarr format 2, as 1 and 2."""

WATCH_KIND = "watch"
"""The attribute `kind` of a store of snapshots."""

PACKAGES = ("scansnap", "numpy", "scipy", "torch", "numba", "xarray", "zarr")


def attributes(kind: str, title: str, options: Mapping[str, Any], **more: str | float) -> dict[str, Any]:
    """A result's attributes: the whole configuration, as text, and where the result comes from.

    `options` must hold the names of the variables under "record".
    """
    return {
        "title": title,
        "kind": kind,
        "format": RESULT_FORMAT,
        "options": json.dumps(dict(options), sort_keys=True),
        **more,
        **provenance(),
    }


def provenance() -> dict[str, str]:
    """The versions, the machine, the commit and the time, as text."""
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
