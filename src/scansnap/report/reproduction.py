"""What a reproduction found: the tests of every figure and the verdict on every claim, to be kept in a small file.

The words, of which each has one place in the code, are not kept; nor are pictures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from scansnap.claims.check import Measurement
from scansnap.claims.claim import Verdict
from scansnap.claims.verify import select
from scansnap.figures import catalog
from scansnap.figures.recipe import FigureRecipe
from scansnap.figures.trend import Trend
from scansnap.results.provenance import provenance


@dataclass(frozen=True)
class FigureResult:
    """A figure that was made."""

    recipe: FigureRecipe
    trends: Sequence[Trend]
    seconds: float

    @property
    def anchor(self) -> str:
        """Where the figure is on a page."""
        return f"figure-{self.recipe.name}"

    @property
    def label(self) -> str:
        """What the figure is called in a list."""
        name = self.recipe.name
        return f"Figure {name}" if name.isdigit() else name.replace("_", " ").capitalize()

    @property
    def holding(self) -> int:
        """How many of its tests hold."""
        return sum(trend.holds for trend in self.trends)


@dataclass(frozen=True)
class Reproduction:
    """Figures and claims, and where they come from."""

    figures: Sequence[FigureResult]
    verdicts: Sequence[Verdict]
    seconds: float
    command: str
    environment: dict[str, str] = field(default_factory=provenance)

    def save(self, path: Path) -> None:
        """Write all that is measured."""
        measured = {
            "command": self.command,
            "seconds": round(self.seconds),
            "environment": self.environment,
            "figures": {
                result.recipe.name: {"seconds": result.seconds, "trends": [asdict(trend) for trend in result.trends]}
                for result in self.figures
            },
            "claims": {
                verdict.id: [asdict(measurement) for measurement in verdict.measurements] for verdict in self.verdicts
            },
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps(_plain(measured), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
        )


def read_reproduction(path: Path) -> Reproduction:
    """What `Reproduction.save` wrote, with the words of this version; the claims have no curves."""
    measured = json.loads(path.read_text(encoding="utf-8"))
    return Reproduction(
        [
            FigureResult(catalog.recipe(name), _read_all(Trend, result["trends"]), result["seconds"])
            for name, result in measured["figures"].items()
        ],
        [
            Verdict(claim, claim.setting(), _read_all(Measurement, measured["claims"][claim.id]), None)
            for claim in select(*measured["claims"])
        ],
        measured["seconds"],
        measured["command"],
        measured["environment"],
    )


Record = TypeVar("Record", Trend, Measurement)

NUMBERS = ("measured", "predicted", "deviation", "allowed")


def _read_all(kind: type[Record], rows: list[dict[str, Any]]) -> tuple[Record, ...]:
    return tuple(_read(kind, row) for row in rows)


def _read(kind: type[Record], values: dict[str, Any]) -> Record:
    """A record of which JSON has no number where there was none, or not a finite one."""
    stored: dict[str, Any] = {part.name: values.get(part.name) for part in fields(kind)}
    for name in NUMBERS:
        if name in stored and stored[name] is None:
            stored[name] = math.nan
    return kind(**stored)


def _plain(value: Any) -> Any:
    """Data for JSON, which has neither infinity nor NaN; numbers to eight digits."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value
