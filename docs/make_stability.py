"""Check every claim at other seeds and in other settings, and write docs/theory/stability.md.

python docs/make_stability.py            checks all claims
python docs/make_stability.py lemma_11   checks those named, and keeps the other rows of the page

Claims that draw random numbers are checked with ten seeds.  All claims are checked with eta_Y, eta_Z and M twice and
half as large, one at a time; M can be halved where the tokens that occur leave room.  It takes half an hour.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from scansnap.claims.check import Setting
from scansnap.claims.claim import INAPPLICABLE, UNMET, Claim, Verdict
from scansnap.claims.discussion import resized
from scansnap.claims.verify import paper_claims, select
from scansnap.runtime.errors import InputError
from scansnap.runtime.progress import progress_bar

PAGE = Path(__file__).parent / "theory" / "stability.md"
SEEDS = range(1, 10)
SAME, EXCUSED = "same", {UNMET, INAPPLICABLE}
NO_ROOM, SAME_NUMBERS = "no room", "same numbers"
NOTHING = "nothing is drawn"

INTRODUCTION = """\
# Stability

*For those who ask whether a verdict is an accident of its setting. After it you can see it at other seeds, rates and
sizes.*

Whether a verdict depends on the seed or on the numbers of a claim's own setting. `python docs/make_stability.py` checks
every claim that draws random numbers with ten seeds, and every claim with η_Y, η_Z and M twice and half as large, one
at a time, and writes this page. A test repeats a part of it.

*same* is the verdict of the claim's own setting, with every correction borne out; *same numbers* is where every number
is the same too, as where a claim does not use what was changed, or counts what all cases do; *assumptions not met* is
where the change breaks an assumption without which the claim promises nothing; *no room* is where M cannot be halved
because the tokens that occur need it, or where tokens depend on their positions. Where a verdict changes, the cell says
what it becomes, and the claim's conditions say what decides.

What is not varied here: the classes themselves. Most settings are of symmetric classes; what unequal ones do to
Theorems 2 and 3 is measured in [`theorem_2`](attention.md#theorem-2-fates-of-tokens) and
[`theorem_3`](distinct.md#theorem-3-one-growth-factor-gives-them-all) themselves. Nor are ratios of the rates far from a
claim's own: a factor of two is not one of a hundred.

"""


def variants(setting: Setting) -> dict[str, Setting | None]:
    """The setting with one number changed by a factor of two; None where that cannot be."""
    size = setting.classes.vocab_size
    return {
        "2 η_Y": replace(setting, lr_y=2 * setting.lr_y),
        "η_Y/2": replace(setting, lr_y=setting.lr_y / 2),
        "2 η_Z": replace(setting, lr_z=2 * setting.lr_z),
        "η_Z/2": replace(setting, lr_z=setting.lr_z / 2),
        "2 M": _resized(setting, 2 * size),
        "M/2": _resized(setting, size // 2),
    }


def _resized(setting: Setting, vocab_size: int) -> Setting | None:
    classes = setting.classes
    if classes.num_buckets:
        return None
    try:
        return replace(setting, classes=resized(classes, vocab_size))
    except InputError:
        return None


@dataclass(frozen=True)
class Row:
    """What became of one claim's verdict."""

    claim: str
    verdict: str
    seeds: str  # of ten, or empty where nothing is drawn
    cells: dict[str, str]

    @property
    def stable(self) -> bool:
        by_seed = not self.seeds or self.seeds == f"{SAME} 10 of 10"
        return by_seed and all(cell in {SAME, NO_ROOM, SAME_NUMBERS, *EXCUSED} for cell in self.cells.values())


def outcome(claim: Claim, own: Verdict, setting: Setting | None, seed: int = 0) -> str:
    """The verdict in another setting or at another seed, `same`, or `same numbers`."""
    if setting is None:
        return NO_ROOM
    try:
        verdict = claim.run(setting, seed=seed)
    except InputError:
        return INAPPLICABLE
    if setting != own.setting and _numbers(verdict) == _numbers(own):
        return SAME_NUMBERS
    failed = [m.label for m in verdict.measurements if m.role == "corrected" and not m.holds]
    if verdict.verdict != own.verdict:
        return verdict.verdict
    return f"not as corrected: {failed[0]}" if failed and not verdict.unmet else SAME


def _numbers(verdict: Verdict) -> list[tuple[float, float]]:
    """What was predicted and measured; labels may name the setting."""
    return [(m.predicted, m.measured) for m in verdict.measurements]


def checked(claim: Claim) -> Row:
    """One claim at ten seeds and in six other settings."""
    setting = claim.setting()
    own = claim.run(setting)
    seeds = ""
    if own.drew:
        outcomes = [outcome(claim, own, setting, seed) for seed in SEEDS]
        others = sorted(set(outcomes) - {SAME})
        seeds = f"{SAME} {1 + outcomes.count(SAME)} of 10" + "".join(f"; {other}" for other in others)
    return Row(
        claim.id,
        own.verdict,
        seeds,
        {name: outcome(claim, own, changed) for name, changed in variants(setting).items()},
    )


def page(rows: list[Row]) -> str:
    names = list(rows[0].cells)
    stable = sum(row.stable for row in rows)
    lines = [
        f"{stable} of {len(rows)} claims keep their verdict in all of this.",
        "",
        "| claim | verdict | seeds | " + " | ".join(names) + " |",
        "| --- | --- | --- |" + " --- |" * len(names),
    ]
    for row in rows:
        cells = (f"`{row.claim}`", row.verdict, row.seeds or NOTHING, *row.cells.values())
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return INTRODUCTION + "\n".join(lines) + "\n"


def rows_of(selected: list[Claim]) -> Iterator[Row]:
    with progress_bar("checking stability", len(selected), None) as show:
        for i, claim in enumerate(selected):
            yield checked(claim)
            show(i + 1)


def stated() -> dict[str, Row]:
    """The rows of the page."""
    if not PAGE.exists():
        return {}
    head, _, *lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.read_text().splitlines() if line[:1] == "|"]
    names = [cell.strip() for cell in head[3:]]
    rows = {}
    for line in lines:
        name, verdict, seeds, *cells = (cell.strip().replace("\\|", "|") for cell in line)
        drawn = "" if seeds == NOTHING else seeds
        rows[name.strip("`")] = Row(name.strip("`"), verdict, drawn, dict(zip(names, cells, strict=True)))
    return rows


def main(*ids: str) -> None:
    rows = stated() if ids else {}
    rows |= {row.claim: row for row in rows_of(select(*ids))}
    PAGE.write_text(page([rows[claim.id] for claim in paper_claims() if claim.id in rows]))


if __name__ == "__main__":
    main(*sys.argv[1:])
