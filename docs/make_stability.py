"""Check every claim at other seeds and in other settings, and write docs/theory/stability.md.

python docs/make_stability.py            checks all claims
python docs/make_stability.py lemma_11   checks those named, and keeps the other rows of the page

Claims that draw random numbers are checked with ten seeds.  All claims are checked with eta_Y, eta_Z and M twice and
half as large, one at a time, and on two unequal classes.  It takes half an hour.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from scansnap.claims.attention import unequal_classes
from scansnap.claims.check import Setting
from scansnap.claims.claim import INAPPLICABLE, UNMET, Claim, Verdict
from scansnap.claims.discussion import resized
from scansnap.claims.verify import paper_claims, select
from scansnap.runtime.errors import InputError
from scansnap.runtime.progress import progress_bar

PAGE = Path(__file__).parent / "theory" / "stability.md"
SEEDS = range(1, 10)
SAME, UNUSED = "same", ""
EXCUSED = {UNMET, INAPPLICABLE}

INTRODUCTION = """\
# Stability

**You will learn** how to tell whether a verdict is an accident of its setting.

`python docs/make_stability.py` checks every claim with ten seeds, with $\\eta_Y$, $\\eta_Z$ and $M$ twice and half as
large, one at a time, and on two classes of unequal probabilities that meet Assumption 2. *same* is the verdict of the
claim's own setting, with every correction borne out. A cell is empty where the claim does not use what was changed, or
where $M$ cannot change. *assumptions not met* and *does not apply* mean that the claim promises nothing there.

"""


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
        return [replace(setting, classes=resized(setting.classes, vocab_size))]
    except InputError:  # the tokens that occur need more
        return []


@dataclass(frozen=True)
class Row:
    """What became of one claim's verdict, by column: `SAME`, `UNUSED`, or what else it became."""

    claim: str
    verdict: str
    cells: dict[str, str]

    @property
    def stable(self) -> bool:
        return all(set(cell.split("; ")) <= {SAME, UNUSED, *EXCUSED} for cell in self.cells.values())


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


def page(rows: list[Row]) -> str:
    names = list(rows[0].cells)
    lines = [
        f"{sum(row.stable for row in rows)} of {len(rows)} claims keep their verdict in all of this.",
        "",
        "| claim | verdict | " + " | ".join(names) + " |",
        "| --- | --- |" + " --- |" * len(names),
    ]
    for row in rows:
        cells = (f"`{row.claim}`", row.verdict, *row.cells.values())
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return INTRODUCTION + "\n".join(lines) + "\n"


def rows_of(selected: list[Claim]) -> Iterator[Row]:
    with progress_bar("checking stability", len(selected), None) as show:
        for i, claim in enumerate(selected):
            yield checked(claim)
            show(i + 1)


def stated() -> dict[str, Row]:
    """The rows of the page."""
    head, _, *lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.read_text().splitlines() if line[:1] == "|"]
    names = [cell.strip() for cell in head[2:]]
    rows = {}
    for line in lines:
        name, verdict, *cells = (cell.strip().replace("\\|", "|") for cell in line)
        rows[name.strip("`")] = Row(name.strip("`"), verdict, dict(zip(names, cells, strict=True)))
    return rows


def main(*ids: str) -> None:
    rows = stated() if ids else {}
    for row in rows_of(select(*ids)):
        rows[row.claim] = row
        PAGE.write_text(page([rows[claim.id] for claim in paper_claims() if claim.id in rows]))


if __name__ == "__main__":
    main(*sys.argv[1:])
