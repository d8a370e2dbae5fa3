"""Check every claim at other seeds and in other settings, and store the outcomes in docs/data/stability.json.

python docs/make_stability.py            checks all claims
python docs/make_stability.py lemma_11   checks those named, and keeps what docs/data/stability.json has of the others

Claims that draw random numbers are checked with ten seeds.  All claims are checked with eta_Y, eta_Z and M twice and
half as large, one at a time, and on two unequal classes.  It takes half an hour.  When the site is built,
`<!-- found: stability -->` on docs/theory/index.md becomes their table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from make_figures import tex

from scansnap.claims.attention import unequal_classes
from scansnap.claims.catalog import paper_claims
from scansnap.claims.check import Setting
from scansnap.claims.claim import INAPPLICABLE, UNMET, Claim, Verdict
from scansnap.claims.population import changed_classes
from scansnap.claims.verify import select
from scansnap.runtime.errors import InputError
from scansnap.runtime.formulas import readable
from scansnap.runtime.progress import progress_bar

DATA = Path(__file__).parent / "data" / "stability.json"
SEEDS = range(1, 10)
SAME, UNUSED = "same", ""
EXCUSED = (UNMET, INAPPLICABLE)


def variants(setting: Setting) -> dict[str, list[Setting]]:
    """Other settings, by the column of the page; none where the setting cannot be changed so."""
    size = setting.classes.vocab_size
    return {
        "η_Y": [replace(setting, lr_y=factor * setting.lr_y) for factor in (2, 0.5)],
        "η_Z": [replace(setting, lr_z=factor * setting.lr_z) for factor in (2, 0.5)],
        "M": [*_resized(setting, 2 * size), *_resized(setting, size // 2)],
        "unequal classes": [replace(setting, classes=unequal_classes())],
    }


def _resized(setting: Setting, vocab_size: int) -> list[Setting]:
    if setting.classes.num_buckets:
        return []
    try:
        return [replace(setting, classes=changed_classes(setting.classes, vocab_size=vocab_size))]
    except InputError:  # the tokens that occur need more
        return []


@dataclass(frozen=True)
class Row:
    """What became of one claim's verdict, by column: `SAME`, `UNUSED`, or what else it became."""

    claim: str
    verdict: str
    cells: dict[str, str]

    @staticmethod
    def is_stable(cell: str) -> bool:
        return set(cell.split("; ")) <= {SAME, UNUSED, *EXCUSED}

    @property
    def stable(self) -> bool:
        return all(map(self.is_stable, self.cells.values()))


def outcome(claim: Claim, own: Verdict, setting: Setting, seed: int = 0) -> str:
    """The verdict in another setting or at another seed: `SAME`, `UNUSED`, or another one."""
    try:
        verdict = claim.run(setting, seed=seed)
    except InputError:
        return INAPPLICABLE
    if seed == 0 and _numbers(verdict) == _numbers(own):
        return UNUSED
    if verdict.verdict != own.verdict:
        return verdict.verdict
    failed = [m.label for m in verdict.measurements if m.role == "corrected" and not m.holds]
    return f"not as corrected: {failed[0]}" if failed and not verdict.unmet else SAME


def _numbers(verdict: Verdict) -> list[tuple[float, float]]:
    """What was predicted and measured; labels may name the setting."""
    return [(m.predicted, m.measured) for m in verdict.measurements]


def checked(claim: Claim) -> Row:
    """One claim at ten seeds and in other settings."""
    setting = claim.setting()
    own = claim.run(setting)
    outcomes = {"seeds": [outcome(claim, own, setting, seed) for seed in SEEDS] if own.drew else []}
    outcomes |= {name: [outcome(claim, own, each) for each in more] for name, more in variants(setting).items()}
    cells = {name: "; ".join(sorted(set(several) - {UNUSED})) for name, several in outcomes.items()}
    return Row(claim.id, own.verdict, cells)


def found(rows: list[Row]) -> str:
    """What stands in place of the mark: counts of outcomes for each change, and the claims whose verdict changes."""
    lines = ["| changed | " + " | ".join((SAME, *EXCUSED)) + " |", "| --- |" + " ---: |" * 3]
    for name in rows[0].cells:
        cells = [row.cells[name].split("; ") for row in rows]
        counts = [sum(word in cell for cell in cells) for word in (SAME, *EXCUSED)]
        lines.append(f"| {tex(name)} | {' | '.join(map(str, counts))} |")
    lines += ["", f"{sum(row.stable for row in rows)} of {len(rows)} claims keep their verdict in all cases.", ""]
    for row in rows:
        changes = "; ".join(f"{name}: {cell}" for name, cell in row.cells.items() if not row.is_stable(cell))
        lines += [f"- `{row.claim}` ({row.verdict}): {tex(readable(changes))}"] if changes else []
    return "\n".join(lines)


def rows_of(selected: list[Claim]) -> Iterator[Row]:
    with progress_bar("checking stability", len(selected), None) as show:
        for i, claim in enumerate(selected):
            yield checked(claim)
            show(i + 1)


def stored_rows() -> dict[str, Row]:
    """The rows as they were checked last."""
    return {name: Row(name, **row) for name, row in json.loads(DATA.read_text(encoding="utf-8")).items()}


def main(*ids: str) -> None:
    rows = stored_rows() if ids else {}
    for row in rows_of(select(*ids)):
        rows[row.claim] = row
        ordered = [rows[claim.id] for claim in paper_claims() if claim.id in rows]
        plain = {row.claim: {"verdict": row.verdict, "cells": row.cells} for row in ordered}
        DATA.write_text(json.dumps(plain, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
