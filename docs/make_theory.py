"""Check every claim and write the verdicts into the pages of docs/theory, with a picture of each.

python docs/make_theory.py

The pages are written by hand except for the text between `<!-- found: lemma_1 -->` and `<!-- end -->`, which is
replaced: a claim's verdict, its measurements and its picture, and in the index the table of all claims.
"""

from __future__ import annotations

import re
from pathlib import Path

from scansnap.claims import Verdict, verify
from scansnap.figures import claim as picture
from scansnap.figures.style import readable

HERE = Path(__file__).parent
PAGES = HERE / "theory"
IMAGES = HERE / "images" / "claims"

FOUND = re.compile(r"(<!-- found: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
EVERY = "every_claim"
"""The name under which the index has its table."""


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    verdicts = verify(progress=True)
    texts = {page: page.read_text() for page in sorted(PAGES.glob("*.md"))}
    places = {match[2]: f"{page.name}#{_anchor(text[: match.start()])}" for page, text in texts.items()
              for match in FOUND.finditer(text)}  # fmt: skip
    rows = "".join(_row(verdict, places[verdict.id]) for verdict in verdicts)
    blocks = {
        EVERY: "| claim | statement | predicted | measured | deviation | category | verdict |\n"
        "| --- | --- | ---: | ---: | ---: | --- | --- |\n" + rows,
        **{verdict.id: _section(verdict) for verdict in verdicts},
    }
    for page, text in texts.items():
        page.write_text(FOUND.sub(lambda match: match[1] + blocks[match[2]] + match[3], text))
    for verdict in verdicts:
        picture.draw(picture.prepare(verdict)).savefig(IMAGES / f"{verdict.id}.png", dpi=110)


def _anchor(text: str) -> str:
    """The last heading of a text as the address that a browser knows it by."""
    heading = re.findall(r"^#+ (.*)$", text, re.MULTILINE)[-1].lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def _cell(text: str) -> str:
    return readable(text).replace("|", "\\|")


def _row(verdict: Verdict, place: str) -> str:
    leading = verdict.leading
    assert leading is not None  # every claim applies to its own setting
    return (
        f"| [`{verdict.id}`]({place}) | {_cell(verdict.claim.statement)} | {leading.predicted:.4g} | "
        f"{leading.measured:.4g} | {leading.deviation:.2g} | {verdict.claim.category} | {verdict.verdict} |\n"
    )


def _section(verdict: Verdict) -> str:
    claim, setting = verdict.claim, verdict.setting
    sizes = f"K = {setting.classes.num_classes}, M = {setting.classes.vocab_size}"
    where = f" *Setting:* {sizes}, η_Y = {setting.lr_y:g}, η_Z = {setting.lr_z:g}."
    lines = [
        f"`scansnap verify {verdict.id}` ({claim.where}): **{verdict.verdict}**. *Category:* {claim.category}.",
        "",
        f"*Check:* {readable(claim.how)}",
        "",
        f"*Conditions:* {readable(claim.conditions)}.{'' if claim.depends_on == 'nothing' else where}",
        "",
    ]
    if claim.correction:
        lines += [f"*Correction:* {readable(claim.correction)}.", ""]
    lines += [
        "| role | measurement | predicted | measured | deviation | allowed | |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for m in verdict.measurements:
        lines.append(
            f"| {m.role} | {_cell(m.label)} | {m.predicted:.4g} | {m.measured:.4g} | {m.deviation:.2g} | "
            f"{m.allowed:.2g} | {'ok' if m.holds else 'not'} |"
        )
    lines += ["", f"![{readable(claim.statement)}](../images/claims/{verdict.id}.png)", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
