"""What the pages share: templates, pictures, and how a page is written."""

from __future__ import annotations

import base64
import io
import struct
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scansnap.runtime.errors import printable
from scansnap.runtime.formulas import readable, typeset
from scansnap.storage.files import check_output, write_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def render(template: str, **values: object) -> str:
    """The page as text; every value that the template shows is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("scansnap.report", ""), autoescape=True, undefined=StrictUndefined, finalize=_shown
    )
    environment.filters.update(readable=readable, typeset=lambda text: typeset(_shown(text)), size=size)
    return environment.get_template(template).render(**values)


def _shown(value: Any) -> Any:
    """A value for a page: text without control characters and marks of direction, and "no number" for NaN."""
    return "no number" if value == "nan" else printable(value, keep="\n\t") if type(value) is str else value


def size(picture: str) -> tuple[int, int]:
    """Width and height of a PNG in base64."""
    return struct.unpack(">II", base64.b64decode(picture[:32])[16:24])


def png(figure: Figure) -> str:
    """A picture as PNG in base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return small_png(buffer.getvalue())


def small_png(picture: bytes) -> str:
    """A PNG reduced to 256 colors, a third of its size and visibly the same, in base64."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


def svg(figure: Figure) -> str:
    """A picture as SVG in base64; the browser's fonts show its words, in any script."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of signs that matplotlib's own font lacks
        figure.savefig(buffer, format="svg")
    return base64.b64encode(buffer.getvalue()).decode()


def check_page(page: Path) -> None:
    """Refuse a file that is no page, or that scansnap did not write, before the work starts."""
    check_output("the page", page, ".html")


def write_page(page: Path, text: str) -> None:
    """Write a page atomically."""
    write_output(page, text.encode())
