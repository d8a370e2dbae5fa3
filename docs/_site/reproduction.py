"""The reproduction's page as a part of the site: from kept numbers and the pictures of the documents, in seconds.

`make documents` writes both.  On the site each claim links to its section of the theory and to the disagreements that
it demonstrates.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from make_theory import claim_places
from stored_numbers import read_reproduction

from scansnap.report.html import small_png, write_page
from scansnap.report.reproduce import Link, render

DOCS = Path(__file__).parents[1]
ENTRY = re.compile(r"^\| (\d+) \|.*\[`(\w+)`\]\([^)]*\) \|$", re.MULTILINE)


DISAGREEMENTS = "disagreements"


def anchor(entry: str) -> str:
    """Where an entry of the disagreements is on their page."""
    return f"entry-{entry}"


def build(folder: Path) -> tuple[Path, str]:
    """Write the page into the site, and give it a title."""
    reproduction = read_reproduction()
    pictures = {
        figure.anchor: DOCS / "images" / "figures" / f"figure_{figure.recipe.name}.png"
        for figure in reproduction.figures
    }
    pictures |= {verdict.id: DOCS / "images" / "claims" / f"{verdict.id}.png" for verdict in reproduction.verdicts}
    page = folder / "reproduction" / "index.html"
    small = {name: small_png(picture.read_bytes()) for name, picture in pictures.items()}
    write_page(page, render(reproduction, small, links()))
    return page, f"The reproduction, made by “{reproduction.command}” on {reproduction.environment['created'][:10]}"


def links() -> dict[str, list[Link]]:
    """Where the site says more about a claim, as seen from the page."""
    about: dict[str, list[Link]] = defaultdict(list)
    for claim, place in claim_places().items():
        page, heading = place.split(".md#")
        about[claim].append(Link("derivation and check", f"../theory/{page}.html#{heading}"))
    for entry, claim in ENTRY.findall((DOCS / f"{DISAGREEMENTS}.md").read_text()):
        about[claim].append(Link(f"disagreement {entry}", f"../{DISAGREEMENTS}.html#{anchor(entry)}"))
    return about
