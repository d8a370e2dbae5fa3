"""Check every claim, draw it, and store what was measured.

python docs/make_theory.py                        checks all claims
python docs/make_theory.py theorem_2 equation_13  checks those named
python docs/make_theory.py --words                checks none, and writes numbers from the stored measurements

All measurements go into docs/data/reproduction.json.  When the site is built, `<!-- found: lemma_1 -->` on a page
becomes that claim's verdict and picture, and `every_claim` and `coverage` become tables (`_site/found.py`).  Two pages
are read without being built and hold their numbers: in docs/summary.md and docs/disagreements.md, numbers between
`<!-- theorem_1: β, true gradient: measured -->` and `<!-- end -->` are measurements, by claim, label and field; those
after `<!-- claims: holds -->` count the verdicts on the paper's statements; and a link to a claim has the mark of its
verdict before it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stored_numbers import read_reproduction, store_claims

from scansnap.claims.catalog import paper_claims
from scansnap.claims.check import Setting, assumed_setting, classes_in_words
from scansnap.claims.claim import ASSUMED_ONLY, CATEGORIES, FAILS, HOLDS, Claim, Verdict
from scansnap.claims.coverage import read_coverage
from scansnap.claims.verify import verify
from scansnap.data.synthetic import syn_small
from scansnap.figures import claim as picture
from scansnap.figures.catalog import NUMBERED, TEXT
from scansnap.runtime.formulas import readable

HERE = Path(__file__).parent
PAGES = HERE / "theory"
IMAGES = HERE / "images" / "claims"
FILLED = (HERE / "summary.md", HERE / "disagreements.md")

FOUND = re.compile(r"^<!-- found: (\w+) -->$", re.MULTILINE)
NUMBER = re.compile(r"(<!-- (\w+): ([^<>]+?): (predicted|measured|deviation|percent|share) -->)(.*?)(<!-- end -->)")
LINK = re.compile(r"\| (?:\S&nbsp;)?(\[`(\w+)`\]\(theory/)")
COUNT = re.compile(r"(<!-- claims: ([a-z ]+) -->)(\d*)(<!-- end -->)")
MARKS = {HOLDS: "✓", ASSUMED_ONLY: "◐", FAILS: "✗"}
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
    """Write the numbers of the pages that are read without being built."""
    verdicts = read_reproduction().verdicts
    for page in FILLED:
        page.write_text(filled(page.read_text(), verdicts))


def found(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """What stands on the pages of the theory in place of each mark."""
    places = claim_places()
    tables = {"every_claim": index_table(verdicts, places), "coverage": coverage_table(verdicts, places)}
    return {**tables, **{verdict.id: _section(verdict) for verdict in verdicts}}


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


def claim_places() -> dict[str, str]:
    """The page of the theory and the heading of each claim."""
    texts = {page.name: page.read_text() for page in sorted(PAGES.glob("*.md"))}
    return {
        match[1]: f"{name}#{_anchor(text[: match.start()])}"
        for name, text in texts.items()
        for match in FOUND.finditer(text)
    }


def coverage_table(verdicts: Sequence[Verdict], places: Mapping[str, str]) -> str:
    """The table of coverage.toml, with links to claims, their verdicts, and figures, and counts."""
    marks = {verdict.id: MARKS[verdict.verdict] for verdict in verdicts}
    parts = read_coverage()
    rows = [row for part in parts.values() for row in part]
    with_claim = sum(bool(row.claims) for row in rows)
    with_figure = sum(bool(row.figures) and not row.claims for row in rows)
    named = {name for row in rows for name in row.claims}
    lines = [
        "Each sentence and equation of the paper, with the claim (✓ holds, ◐ holds under its assumptions only,",
        "✗ fails) or figure that tests it, or the reason why there is none.",
        f"{len(rows)} entries: {with_claim} with one or more of {len(named)} claims, {with_figure} with a figure,",
        f"{len(rows) - with_claim - with_figure} with only a reason.",
    ]
    for name, statements in parts.items():
        lines += ["", f"## {name}", ""]
        for row in statements:
            equations = f", {_numbered(row.equations)}" if row.equations else ""
            tests = [f"{marks[name]}&nbsp;[`{name}`]({places[name]})" for name in row.claims]
            tests += [_figure_link(name) for name in row.figures]
            rest = "; ".join([*([", ".join(tests)] if tests else []), *([row.reason] if row.reason else [])])
            lines.append(f"- **{row.at}**{equations}: {row.words} ({rest}).")
    return "\n".join(lines) + "\n"


def _figure_link(name: str) -> str:
    if name in TEXT:
        return f"[Figure {name}](../text_results.md)"
    return f"[Figure {name}](../figures.md)" if name in NUMBERED else f"[study of {STUDIES[name]}](../beyond/{name}.md)"


def _numbered(numbers: Sequence[int]) -> str:
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
    return f"{text}\n\n![{verdict.id}](../images/claims/{verdict.id}.png)"


if __name__ == "__main__":
    if "--words" in sys.argv:
        write()
    else:
        main(*sys.argv[1:])
