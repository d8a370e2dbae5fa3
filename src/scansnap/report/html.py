"""What the pages share: templates, pictures, marks of verdicts, and how a page is written."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from scansnap.base.errors import StoreError
from scansnap.base.printable import printable
from scansnap.claims.claim import ASSUMED_ONLY, FAILS, HOLDS, INAPPLICABLE, UNMET, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {
    HOLDS: "holds", ASSUMED_ONLY: "half", "not settled": "half", FAILS: "fails", UNMET: "half", INAPPLICABLE: "soft",
}  # fmt: skip
"""How verdicts of claims and trends are colored: classes of the style sheet."""

GENERATOR = '<meta name="generator" content="scansnap">'
"""The mark by which scansnap knows its own pages."""


def render(template: str, **values: object) -> str:
    """A page as text; everything that the template shows is escaped, and no more than text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from scansnap.figures.style import readable

    environment = Environment(
        loader=PackageLoader("scansnap.report", ""), autoescape=True, undefined=StrictUndefined, finalize=_shown
    )  # fmt: skip
    environment.filters["readable"] = readable
    return environment.get_template(template).render(marks=MARKS, **values)


def _shown(value: object) -> object:
    """A value for a page: text without marks of direction and control characters; words where there is no number."""
    return "no number" if value == "nan" else printable(value, keep="\n\t") if type(value) is str else value


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many claims got each verdict, in words."""
    words = [verdict.verdict for verdict in verdicts]
    return "; ".join(f"{words.count(word)} {word}" for word in MARKS if word in words)


def png(figure: Figure) -> str:
    """A picture as PNG in base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return base64.b64encode(buffer.getvalue()).decode()


def is_ours(page: Path) -> bool:
    """Whether scansnap wrote the page."""
    return page.is_file() and GENERATOR in page.read_text(encoding="utf-8", errors="replace")[:1000]


def write_page(page: Path, text: str) -> None:
    """Write a page, all of it or nothing."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        draft = page.with_name(page.name + ".new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(page)
    except OSError as error:
        raise StoreError(f"cannot write {page}: {error.strerror or error}.") from None
