"""Check every claim and write the verdicts into the pages of docs/theory, with a picture of each.

python docs/make_theory.py                        checks all claims
python docs/make_theory.py theorem_2 equation_13  checks those named
python docs/make_theory.py --words                checks none, and writes the pages from the stored numbers

All measurements go into docs/data/reproduction.json, from which the pages are written.  They are written by hand except
for the text between `<!-- found: lemma_1 -->` and `<!-- end -->`, which is replaced: a claim's verdict and its picture,
and in the index the table of all claims.  The page coverage.md is made of coverage.toml, which lists the paper's
statements.  In docs/summary.md and docs/disagreements.md, numbers between
`<!-- theorem_1: β, true gradient: measured -->` and `<!-- end -->` are measurements, by claim, label and field; those
after `<!-- claims: holds -->` count the verdicts on the paper's statements.  In tables of docs/disagreements.md and in
coverage.md a link to a claim has the mark of its verdict before it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stored_numbers import read_reproduction, store_claims

from scansnap.claims.catalog import paper_claims
from scansnap.claims.check import Setting, assumed_setting, classes_in_words
from scansnap.claims.claim import ASSUMED_ONLY, CATEGORIES, FAILS, HOLDS, Claim, Verdict
from scansnap.claims.verify import verify
from scansnap.data.synthetic import syn_small
from scansnap.figures import claim as picture
from scansnap.figures.catalog import NUMBERED, TEXT
from scansnap.runtime.formulas import readable

HERE = Path(__file__).parent
PAGES = HERE / "theory"
IMAGES = HERE / "images" / "claims"
FILLED = (HERE / "summary.md", HERE / "disagreements.md")

FOUND = re.compile(r"(<!-- found: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
NUMBER = re.compile(r"(<!-- (\w+): ([^<>]+?): (predicted|measured|deviation|percent|share) -->)(.*?)(<!-- end -->)")
LINK = re.compile(r"\| (?:\S&nbsp;)?(\[`(\w+)`\]\(theory/)")
COUNT = re.compile(r"(<!-- claims: ([a-z ]+) -->)(\d*)(<!-- end -->)")
MARKS = {HOLDS: "✓", ASSUMED_ONLY: "◐", FAILS: "✗"}
EVERY = "every_claim"
"""The name under which the index has its table."""
STUDIES = {
    "normalization": "LayerNorm",
    "optimizers": "optimizers",
    "finite_data": "finite data",
    "heads": "heads",
    "layers": "layers",
}
"""The studies that coverage.toml names, in words."""
USUAL = (3, 1600, 0.5, 0.0005)
"""K, M and the rates of the setting that the index gives."""
USUAL_CLASSES = {classes_in_words(classes) for classes in (assumed_setting().classes, syn_small())}
"""What the index says of classes with $K = 3$, and of the published ones."""


def main(*ids: str) -> list[Verdict]:
    """The verdicts that were checked."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    verdicts = verify(*ids, progress=True)
    store_claims(verdicts, [claim.id for claim in paper_claims()])
    write()
    for verdict in verdicts:
        picture.draw(verdict).savefig(IMAGES / f"{verdict.id}.png", dpi=110)
    return verdicts


def write() -> None:
    """Write all pages from the stored numbers."""
    verdicts = read_reproduction().verdicts
    for page, text in written_pages(verdicts).items():
        page.write_text(text)
    (PAGES / "coverage.md").write_text(coverage_page(verdicts))


def written_pages(verdicts: Sequence[Verdict]) -> dict[Path, str]:
    """The pages with what was found."""
    texts = {page: page.read_text() for page in sorted(PAGES.glob("*.md"))}
    places = claim_places(texts)
    blocks = {EVERY: index_table(verdicts, places), **{verdict.id: _section(verdict) for verdict in verdicts}}
    pages = {page: FOUND.sub(lambda part: part[1] + blocks[part[2]] + part[4], text) for page, text in texts.items()}
    return pages | {page: filled(page.read_text(), verdicts) for page in FILLED}


def index_table(verdicts: Sequence[Verdict], places: Mapping[str, str]) -> str:
    """A table of all claims by verdict and category."""
    rows = "| verdict | category | claims |\n| --- | --- | --- |\n"
    for word in (HOLDS, ASSUMED_ONLY, FAILS):
        for category in CATEGORIES:
            alike = [each.id for each in verdicts if (each.verdict, each.claim.category) == (word, category)]
            links = ", ".join(f"[`{name}`]({places[name]})" for name in alike)
            rows += f"| {word} | {category} | {links} |\n" if alike else ""
    return rows


def filled(text: str, verdicts: Sequence[Verdict]) -> str:
    """The text with the numbers of these verdicts, and counts of the verdicts on the paper's statements."""
    by_id = {verdict.id: verdict for verdict in verdicts}
    words = [verdict.verdict for verdict in verdicts if verdict.claim.category != "added"]
    text = NUMBER.sub(lambda match: match[1] + number(by_id[match[2]], match[3], match[4]) + match[6], text)
    text = LINK.sub(lambda match: f"| {MARKS[by_id[match[2]].verdict]}&nbsp;{match[1]}", text)
    return COUNT.sub(
        lambda match: f"{match[1]}{len(words) if match[2] == 'all' else words.count(match[2])}{match[4]}", text
    )


def number(verdict: Verdict, label: str, field: str) -> str:
    """A field of a claim's measurement to two digits; percent is the deviation in percent, share the measured value."""
    (measurement,) = [m for m in verdict.measurements if readable(m.label) == label]
    value = getattr(measurement, {"percent": "deviation", "share": "measured"}.get(field, field))
    if field in ("percent", "share"):
        return f"{100 * value:.2g}%" if value < 1 else f"{100 * value:.0f}%"
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


def coverage_page(verdicts: Sequence[Verdict]) -> str:
    """The table of coverage.toml, with links to claims, their verdicts, and figures, and counts."""
    marks = {verdict.id: MARKS[verdict.verdict] for verdict in verdicts}
    places = claim_places({page: page.read_text() for page in sorted(PAGES.glob("*.md"))})
    parts = read_coverage()
    rows = [row for part in parts for row in part["statements"]]
    with_claim = sum("claims" in row for row in rows)
    with_figure = sum("figures" in row and "claims" not in row for row in rows)
    named = {name for row in rows for name in row.get("claims", ())}
    lines = [
        "# Coverage",
        "",
        "Each sentence and equation of the paper, with the claim (✓ holds, ◐ holds under its assumptions only,",
        "✗ fails) or figure that tests it, or the reason why there is none.",
        f"{len(rows)} entries: {with_claim} with one or more of {len(named)} claims, {with_figure} with a figure,",
        f"{len(rows) - with_claim - with_figure} with only a reason.",
    ]
    for part in parts:
        lines += ["", f"## {part['name']}", ""]
        for row in part["statements"]:
            equations = f", {_numbered(row['equations'])}" if "equations" in row else ""
            tests = [f"{marks[name]}&nbsp;[`{name}`]({places[name]})" for name in row.get("claims", ())]
            tests += [_figure_link(name) for name in row.get("figures", ())]
            rest = "; ".join([*([", ".join(tests)] if tests else []), *([row["reason"]] if "reason" in row else [])])
            lines.append(f"- **{row['at']}**{equations}: {row['words']} ({rest}).")
    return "\n".join(lines) + "\n"


def _figure_link(name: str) -> str:
    if name in TEXT:
        return f"[Figure {name}](../text_results.md)"
    return f"[Figure {name}](../figures.md)" if name in NUMBERED else f"[study of {STUDIES[name]}](../beyond/{name}.md)"


def _numbered(numbers: list[int]) -> str:
    """Equations by number, with runs of them as first to last."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"Eq{'s' * (len(numbers) > 1)}. {ranges}"


def _anchor(text: str) -> str:
    """The last heading of a text as the address that a browser knows it by."""
    heading = re.findall(r"^#+ (.*)$", text, re.MULTILINE)[-1].lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def setting_words(claim: Claim, setting: Setting) -> str:
    """As much of the setting as the claim depends on, in TeX; nothing for the setting that the index gives."""
    numbers = (setting.classes.num_classes, setting.classes.vocab_size, setting.lr_y, setting.lr_z)
    classes = classes_in_words(setting.classes)
    unusual = claim.depends_on.startswith("the classes") and classes not in USUAL_CLASSES
    if claim.depends_on == "nothing" or (numbers == USUAL and not unusual):
        return ""
    words = rf" Setting: $K={numbers[0]}$, $M={numbers[1]}$, $\eta_Y={numbers[2]:g}$, $\eta_Z={numbers[3]:g}$"
    return f"{words}, {classes}." if unusual else f"{words}."


def _section(verdict: Verdict) -> str:
    claim = verdict.claim
    text = f"`scansnap verify {verdict.id}`: **{verdict.verdict}** ({claim.where})."
    text += setting_words(claim, verdict.setting)
    if claim.conditions != "none":
        text += f" *Conditions:* {claim.conditions}."
    if claim.correction:
        text += f" *Correction:* {claim.correction}."
    return f"{text}\n\n![{verdict.id}](../images/claims/{verdict.id}.png)\n"


if __name__ == "__main__":
    if "--words" in sys.argv:
        write()
    else:
        main(*sys.argv[1:])
