"""Check every claim and write what was found: docs/claims.md and the pictures it shows.

python docs/make_claims.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from scansnap.claims import Verdict, verify
from scansnap.figures import claim as picture

HERE = Path(__file__).parent
IMAGES = HERE / "images" / "claims"

OPENING = """# Claims

Every statement of the paper, checked against exact dynamics. `scansnap verify` makes this table in about twenty seconds
on two cores, `scansnap verify theorem_3` explains one claim with all its measurements, and `ss.verify(classes=...)` or
`scansnap verify --classes FILE` check them on your own classes and rates. This page is written by
`docs/make_claims.py`; the tests compare its verdicts with what they find.

A claim *holds*; *holds under its assumptions only*, when it fails without one of them (under true SGD instead of Lemma
3's modified gradient, at finite T, at η_Y/η_Z near one, or with momentum); or *fails* as published, with the correction
checked beside it. Each check can fail: with the prediction wrong by the factor in the last line of
`scansnap verify theorem_3` the tests see it caught, and so for every other. Predicted and measured are the numbers at
the point that decided.

| claim | statement | predicted | measured | verdict |
| --- | --- | ---: | ---: | --- |
"""


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    verdicts = verify(progress=True)
    text = OPENING + "".join(_row(one) for one in verdicts) + "\n" + "".join(_section(one) for one in verdicts)
    (HERE / "claims.md").write_text(text)


def _row(verdict: Verdict) -> str:
    leading = verdict.leading
    assert leading is not None  # every claim applies to its own setting
    statement = verdict.claim.statement.replace("|", "\\|")
    return f"| [`{verdict.id}`](#{verdict.id}) | {statement} | {leading.predicted:.4g} | {leading.measured:.4g} | {verdict.verdict} |\n"  # noqa: E501


def _section(verdict: Verdict) -> str:
    claim = verdict.claim
    lines = [
        f"## {verdict.id}",
        "",
        f"{claim.where}. {claim.statement}",
        "",
        f"*Conditions:* {claim.conditions}. *Check:* {claim.how}",
        "",
    ]
    used = dict.fromkeys(re.findall(r"\btheory\.([a-z]\w+)", inspect.getsource(claim.check)))
    if used:
        lines += [f"*Functions:* {', '.join(f'`theory.{name}`' for name in used)}.", ""]
    if claim.correction:
        lines += [f"*Correction:* {claim.correction}.", ""]
    lines += [
        "| role | measurement | predicted | measured | deviation | allowed | |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in verdict.measurements:
        label = one.label.replace("|", "\\|")
        lines.append(
            f"| {one.role} | {label} | {one.predicted:.4g} | {one.measured:.4g} | {one.deviation:.2g} | "
            f"{one.allowed:.2g} | {'ok' if one.holds else 'not'} |"
        )
    lines.append("")
    picture.draw(picture.prepare(verdict)).savefig(IMAGES / f"{verdict.id}.png", dpi=110)
    lines += [f"![{verdict.id}](images/claims/{verdict.id}.png)", ""]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
