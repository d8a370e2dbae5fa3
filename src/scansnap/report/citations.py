"""Links from what a text cites to where it stands on the page: theorems, equations, figures, and claims by id."""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import Markup

from scansnap.claims.claim import Claim

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
                for number in _all(numbers):
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


def _all(numbers: str) -> Iterable[int]:
    """The numbers of "9 and 81 to 90"."""
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
        yield from range(int(first), int(last or first) + 1)
