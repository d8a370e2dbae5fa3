"""One self-contained page with verdicts on claims, the paper's or a user's, and what it shares with other pages.

Theorems, equations, figures and ids that a text cites become links to their place on the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from markupsafe import Markup

from scansnap.claims.check import ROLES
from scansnap.claims.claim import ASSUMED_ONLY, FAILS, HOLDS, INAPPLICABLE, UNMET, Claim, Verdict
from scansnap.report import html
from scansnap.storage.provenance import provenance

MARKS = {
    HOLDS: "holds",
    ASSUMED_ONLY: "half",
    "not settled": "half",
    FAILS: "fails",
    UNMET: "half",
    INAPPLICABLE: "soft",
}
"""The style sheet's class for each verdict of a claim or trend."""

NUMBERED = r"(Theorem|Lemma|Corollary|Remark|Assumption|Table) (\d+)"
EQUATIONS = re.compile(r"Eqs?\. (\d[\d, and to]*\d|\d)")


class Citations:
    """What the claims and figures of a page say, by the words that cite it."""

    def __init__(self, claims: Iterable[Claim], figures: Iterable[str] = ()) -> None:
        self.anchors: dict[str, str] = {f"Figure {name}": f"figure-{name}" for name in figures}
        for claim in claims:
            self.anchors[claim.id] = claim.id
            for kind, number in re.findall(NUMBERED, claim.where.split(",")[0]):
                self.anchors.setdefault(f"{kind} {number}", claim.id)
            for numbers in EQUATIONS.findall(claim.where):
                for number in _each(numbers):
                    self.anchors.setdefault(f"Eq. {number}", claim.id)
        ids = "|".join(sorted((name for name in self.anchors if "_" in name), key=len, reverse=True))
        self.words = re.compile(
            rf"{NUMBERED}\b|Figure \d+\b|Eqs?\. (?P<equation>\d+)\b" + (rf"|(?<![\w.])({ids})\b" if ids else "")
        )

    def link(self, text: Markup, here: str = "") -> Markup:
        """The text with links, but none to where it stands."""

        def linked(match: re.Match[str]) -> str:
            cited = f"Eq. {match['equation']}" if match["equation"] else match[0]
            anchor = self.anchors.get(cited, here)
            return match[0] if anchor == here else f'<a href="#{anchor}">{match[0]}</a>'

        return Markup(self.words.sub(linked, text))


def _each(numbers: str) -> Iterable[int]:
    """The numbers of "9 and 81 to 90"."""
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
        yield from range(int(first), int(last or first) + 1)


def short_name(claim: Claim) -> str:
    """The name of a claim in a list: where the paper states it, or its id in words where the paper does not."""
    place, *more = claim.where.split(";")[0].split(", ")
    if claim.id.startswith("equation_"):
        return f"Eq. {claim.id.removeprefix('equation_')}"
    if claim.category == "added" or not any(letter.isdigit() for letter in place):
        return claim.id.replace("_", " ").capitalize()
    return f"{place} ({more[0]})" if more and more[0][:1].islower() and not more[0].startswith("with ") else place


def count_verdict(verdict: str, count: int) -> str:
    """The number of statements with this verdict, in words: `1 holds`, `2 hold`."""
    plural = verdict
    for single, several in (("holds", "hold"), ("fails", "fail"), ("does", "do"), (" its ", " their ")):
        plural = plural.replace(single, several)
    return f"{count} {verdict if count == 1 else plural}"


def count_verdicts(verdicts: Iterable[Verdict]) -> str:
    """The number of claims with each verdict, in words."""
    words = [verdict.verdict for verdict in verdicts]
    return "; ".join(count_verdict(word, words.count(word)) for word in MARKS if word in words)


def write_claims_page(page: Path, verdicts: Sequence[Verdict]) -> None:
    """Write a page with each claim's statement, verdict, measurements and picture."""
    from scansnap.figures import claim

    html.check_page(page)
    pictures = {verdict.id: html.png(claim.draw(verdict)) for verdict in verdicts if not verdict.reason}
    text = html.render(
        "claims_page.html.jinja",
        verdicts=verdicts,
        counts=count_verdicts(verdicts),
        pictures=pictures,
        marks=MARKS,
        roles=ROLES,
        cite=Citations([verdict.claim for verdict in verdicts]).link,
        environment=provenance(),
    )
    html.write_page(page, text)
