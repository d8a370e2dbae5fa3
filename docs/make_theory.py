"""Check every claim and write the verdicts into the pages of docs/theory, with a picture of each.

python docs/make_theory.py                        checks all claims
python docs/make_theory.py theorem_2 equation_13  checks those named, and keeps what the pages say about the others

The pages are written by hand except for the text between `<!-- found: lemma_1 -->` and `<!-- end -->`, which is
replaced: a claim's verdict and its picture, and in the index the table of all claims.  All measurements go into
docs/data/reproduction.json.  The page coverage.md is made of coverage.toml, which lists the paper's statements.  In
docs/summary.md and docs/disagreements.md, numbers between `<!-- theorem_1: β, true gradient: measured -->`
and `<!-- end -->` are measurements, by claim, label and field; those after `<!-- claims: holds -->` count the verdicts
on the paper's statements.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from stored_numbers import store_claims

from scansnap.claims.check import Setting
from scansnap.claims.claim import Claim, Verdict
from scansnap.claims.verify import paper_claims, verify
from scansnap.figures import claim as picture
from scansnap.figures.catalog import NUMBERED, TEXT
from scansnap.runtime.formulas import readable

HERE = Path(__file__).parent
PAGES = HERE / "theory"
IMAGES = HERE / "images" / "claims"
FILLED = (HERE / "summary.md", HERE / "disagreements.md")

FOUND = re.compile(r"(<!-- found: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
ROW = re.compile(r"^(\| \[`(\w+)`\].*\| [a-z ]+ \|\n)", re.MULTILINE)
NUMBER = re.compile(r"(<!-- (\w+): ([^<>]+?): (predicted|measured|deviation|percent) -->)(.*?)(<!-- end -->)")
COUNT = re.compile(r"(<!-- claims: ([a-z ]+) -->)(\d*)(<!-- end -->)")
EVERY = "every_claim"
"""The name under which the index has its table."""


def main(*ids: str) -> list[Verdict]:
    """The verdicts that were written."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    verdicts = verify(*ids, progress=True)
    texts = {page: page.read_text() for page in sorted(PAGES.glob("*.md"))}
    places = claim_places(texts)
    rows = {name: row for row, name in ROW.findall(texts[PAGES / "index.md"])}
    rows |= {verdict.id: _row(verdict, places[verdict.id]) for verdict in verdicts}
    claims = paper_claims()
    blocks = {
        EVERY: "| claim | category | verdict |\n| --- | --- | --- |\n" + "".join(rows[claim.id] for claim in claims),
        **{verdict.id: _section(verdict) for verdict in verdicts},
    }
    for page, text in texts.items():
        page.write_text(FOUND.sub(lambda match: match[1] + blocks.get(match[2], match[3]) + match[4], text))
    (PAGES / "coverage.md").write_text(coverage_page())
    words = [rows[claim.id].strip(" |\n").split(" | ")[-1] for claim in claims if claim.category != "added"]
    for page in FILLED:
        page.write_text(filled(page.read_text(), verdicts, words))
    store_claims(verdicts, [claim.id for claim in paper_claims()])
    for verdict in verdicts:
        picture.draw(verdict).savefig(IMAGES / f"{verdict.id}.png", dpi=110)
    return verdicts


def filled(text: str, verdicts: list[Verdict], words: list[str]) -> str:
    """The text with the numbers of these verdicts, and counts of the words that all claims got."""
    by_id = {verdict.id: verdict for verdict in verdicts}
    text = NUMBER.sub(
        lambda match: (
            match[0] if match[2] not in by_id else match[1] + number(by_id[match[2]], match[3], match[4]) + match[6]
        ),
        text,
    )
    return COUNT.sub(
        lambda match: f"{match[1]}{len(words) if match[2] == 'all' else words.count(match[2])}{match[4]}", text
    )


def number(verdict: Verdict, label: str, field: str) -> str:
    """A field of a claim's measurement to two digits; percent is the deviation as such."""
    (measurement,) = [m for m in verdict.measurements if readable(m.label) == label]
    if field == "percent":
        return f"{100 * measurement.deviation:.2g}%"
    value = getattr(measurement, field)
    return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"


def claim_places(texts: dict[Path, str]) -> dict[str, str]:
    """The page and heading of each claim."""
    return {
        match[2]: f"{page.name}#{_anchor(text[: match.start()])}"
        for page, text in texts.items()
        for match in FOUND.finditer(text)
    }


def read_coverage() -> list[dict[str, Any]]:
    """The parts of coverage.toml, each with its statements."""
    parts: list[dict[str, Any]] = tomllib.loads((PAGES / "coverage.toml").read_text())["part"]
    return parts


def coverage_page() -> str:
    """The table of coverage.toml, with links to claims and figures, and counts."""
    places = claim_places({page: page.read_text() for page in sorted(PAGES.glob("*.md"))})
    parts = read_coverage()
    rows = [row for part in parts for row in part["statements"]]
    with_claim = sum("claims" in row for row in rows)
    with_figure = sum("figures" in row and "claims" not in row for row in rows)
    named = {name for row in rows for name in row.get("claims", ())}
    lines = [
        "# Coverage",
        "",
        "**You will learn** how to find, for any sentence or equation of the paper, the claim or figure that tests it,",
        "or the reason why there is none.",
        "",
        f"{len(rows)} entries: {with_claim} with one or more of {len(named)} claims, {with_figure} with a figure,",
        f"{len(rows) - with_claim - with_figure} with a reason alone.",
    ]
    for part in parts:
        lines += ["", f"## {part['name']}", ""]
        for row in part["statements"]:
            equations = f", Eqs. {_ranges(row['equations'])}" if "equations" in row else ""
            tests = [f"[`{name}`]({places[name]})" for name in row.get("claims", ())]
            tests += [f"[Figure {name}]({_figure_page(name)})" for name in row.get("figures", ())]
            rest = "; ".join([*([", ".join(tests)] if tests else []), *([row["reason"]] if "reason" in row else [])])
            lines.append(f"- **{row['at']}**{equations}: {row['words']} ({rest}).")
    return "\n".join(lines) + "\n"


def _figure_page(name: str) -> str:
    if name in TEXT:
        return "../text_results.md"
    return "../figures.md" if name in NUMBERED else "../beyond/figures.md"


def _ranges(numbers: tuple[int, ...] | list[int]) -> str:
    """Numbers in increasing order, with runs of them as first-last."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _anchor(text: str) -> str:
    """The last heading of a text as the address that a browser knows it by."""
    heading = re.findall(r"^#+ (.*)$", text, re.MULTILINE)[-1].lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def _row(verdict: Verdict, place: str) -> str:
    return f"| [`{verdict.id}`]({place}) | {verdict.claim.category} | {verdict.verdict} |\n"


def setting_words(claim: Claim, setting: Setting) -> str:
    """As much of the setting as the claim depends on, in TeX."""
    if claim.depends_on == "nothing":
        return ""
    rates = rf"$\eta_Y={setting.lr_y:g}$, $\eta_Z={setting.lr_z:g}$"
    return f" In the setting $K={setting.classes.num_classes}$, $M={setting.classes.vocab_size}$, {rates}:"


def _section(verdict: Verdict) -> str:
    claim, leading = verdict.claim, verdict.leading
    assert leading is not None  # every claim applies to its own setting
    conditions = f" *Conditions:* {claim.conditions}." if claim.conditions != "none" else ""
    found = f"{readable(leading.label)}, predicted {leading.predicted_text}, measured {leading.measured_text}."
    correction = f" *Correction:* {claim.correction}." if claim.correction else ""
    picture_link = f"![{verdict.id}](../images/claims/{verdict.id}.png)"
    return (
        f"`scansnap verify {verdict.id}`: **{verdict.verdict}** ({claim.where})."
        f"{setting_words(claim, verdict.setting)} {found}{conditions}{correction}\n\n{picture_link}\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
