"""What the pages share: templates, pictures, marks of verdicts, and how a page is written."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scansnap.claims.claim import ASSUMED_ONLY, FAILS, HOLDS, INAPPLICABLE, UNMET, Claim, Verdict
from scansnap.runtime.errors import StoreError, printable
from scansnap.runtime.formulas import readable, typeset
from scansnap.storage.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {
    HOLDS: "holds",
    ASSUMED_ONLY: "half",
    "not settled": "half",
    FAILS: "fails",
    UNMET: "half",
    INAPPLICABLE: "soft",
}
"""How verdicts of claims and trends are colored: classes of the style sheet."""

GENERATOR = '<meta name="generator" content="scansnap">'
"""The mark by which scansnap knows its own pages."""


def render(template: str, **values: object) -> str:
    """A page as text; everything that the template shows is escaped, and no more than text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("scansnap.report", ""), autoescape=True, undefined=StrictUndefined, finalize=_shown
    )
    environment.filters["readable"] = readable
    environment.filters["typeset"] = lambda text: typeset(_shown(text))
    environment.filters.update(short_name=short_name, together=together, size=size)
    return environment.get_template(template).render(marks=MARKS, **values)


def _shown(value: Any) -> Any:
    """A value for a page: text without marks of direction and control characters; words where there is no number."""
    return "no number" if value == "nan" else printable(value, keep="\n\t") if type(value) is str else value


def short_name(claim: Claim) -> str:
    """What a claim is called in a list: where the paper says it, or its id in words where the paper does not."""
    place, *more = claim.where.split(";")[0].split(", ")
    if claim.id.startswith("equation_"):
        return f"Eq. {claim.id.removeprefix('equation_')}"
    if claim.category == "added" or not any(letter.isdigit() for letter in place):
        return claim.id.replace("_", " ").capitalize()
    return f"{place} ({more[0]})" if more and more[0][:1].islower() and not more[0].startswith("with ") else place


def together(word: str, count: int) -> str:
    """A verdict on so many."""
    plural = word
    for single, several in (("holds", "hold"), ("fails", "fail"), ("does", "do"), (" its ", " their ")):
        plural = plural.replace(single, several)
    return f"{count} {word if count == 1 else plural}"


def size(picture: str) -> tuple[int, int]:
    """Width and height of a PNG in base64."""
    return struct.unpack(">II", base64.b64decode(picture[:32])[16:24])


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many claims got each verdict, in words."""
    words = [verdict.verdict for verdict in verdicts]
    return "; ".join(together(word, words.count(word)) for word in MARKS if word in words)


def png(figure: Figure) -> str:
    """A picture as PNG in base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return small_png(buffer.getvalue())


def small_png(picture: bytes) -> str:
    """A PNG as one of 256 colors, a third of its size and not to be told from it, in base64."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


def is_ours(page: Path) -> bool:
    """Whether scansnap wrote the page."""
    if not page.is_file():
        return False
    with page.open(encoding="utf-8", errors="replace") as file:
        return GENERATOR in file.read(1000)


def write_page(page: Path, text: str) -> None:
    """Write a page, all of it or nothing."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        replace_file(page, text.encode())
    except OSError as error:
        raise StoreError(f"cannot write {page}: {error.strerror or error}.") from None
