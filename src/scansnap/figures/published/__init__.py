"""Published numbers, taken from the paper and its authors' logs; each file names its source."""

from __future__ import annotations

import csv
from importlib.resources import files


def published(name: str) -> list[dict[str, float]]:
    """The rows of `name`.csv."""
    text = files(__name__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(lines)]
