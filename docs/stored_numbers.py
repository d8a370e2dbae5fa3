"""The numbers of the reproduction that the documents show: docs/data/reproduction.json, without pictures and texts."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from scansnap.claims.check import Measurement
from scansnap.claims.claim import Verdict
from scansnap.claims.verify import select
from scansnap.figures import catalog
from scansnap.figures.recipe import Trend
from scansnap.report.reproduction import PageFigure, Reproduction

RESULTS = Path(__file__).parent / "data" / "reproduction.json"


def store_reproduction(reproduction: Reproduction, path: Path = RESULTS) -> None:
    """Write all measured numbers."""
    measured = {
        "command": reproduction.command,
        "seconds": round(reproduction.seconds),
        "environment": reproduction.environment,
        "figures": {
            result.recipe.name: {"seconds": result.seconds, "trends": [asdict(trend) for trend in result.trends]}
            for result in reproduction.figures
        },
        "claims": measurements_of(reproduction.verdicts),
    }
    write_json(measured, path)


def store_claims(verdicts: list[Verdict], ids: list[str]) -> None:
    """Put the measurements of some claims among the stored ones, in the order of all ids."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    claims = {**stored["claims"], **measurements_of(verdicts)}
    write_json({**stored, "claims": {name: claims[name] for name in ids}}, RESULTS)


def measurements_of(verdicts: Any) -> dict[str, Any]:
    return {verdict.id: [asdict(measurement) for measurement in verdict.measurements] for verdict in verdicts}


def write_json(measured: dict[str, Any], path: Path) -> None:
    text = json.dumps(for_json(measured), ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")


def for_json(value: Any) -> Any:
    """The value with numbers rounded to eight digits, and null for infinity and NaN."""
    if isinstance(value, dict):
        return {name: for_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [for_json(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value


def read_reproduction(path: Path = RESULTS) -> Reproduction:
    """The stored reproduction, with the texts of this version; claims have no curves."""
    measured = json.loads(path.read_text(encoding="utf-8"))
    return Reproduction(
        [
            PageFigure(catalog.recipe(name), _read_all(Trend, result["trends"]), result["seconds"])
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
    """A record from JSON, which has null for numbers that are not finite."""
    stored: dict[str, Any] = {part.name: values.get(part.name) for part in fields(kind)}
    for name in NUMBERS:
        if name in stored and stored[name] is None:
            stored[name] = math.nan
    return kind(**stored)
