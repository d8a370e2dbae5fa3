"""Pages that run inside a page of the site.

    <!-- live: explorer #classes=syn-small&lr_y=1 -->
    ![what it looks like](images/explorer.png)

Where a page is read elsewhere, the comment is not seen and the picture is; on the site the explorer takes the place of
the picture, with its controls as the address says.  `<!-- live: reproduction -->` shows the page that `make reproduce`
made, or, where it made none, a part of it that takes seconds.
"""

from __future__ import annotations

import re
import shutil
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.osutil import relative_uri

from scansnap.explorer.page import page_of
from scansnap.report.page import reproduce

REPRODUCTION = Path(__file__).parents[2] / "reproduction" / "index.html"
FIGURES, CLAIMS = ("4", "9"), ("lemma_6", "corollary_1", "energy_law")
"""The part of the reproduction that takes seconds."""

COMMENT = re.compile(r"<!-- live: (explorer|reproduction) ?(#\S*)? -->")
FRAME = """<figure class="live"><figcaption>{title}. <a href="{source}">Open it on a page of its own.</a></figcaption>
<iframe src="{source}" title="{title}" loading="lazy"></iframe></figure>"""


class LivePages(SphinxTransform):
    """Replace the comment, and the picture after it, by a frame."""

    default_priority = 900

    def apply(self, **kwargs: Any) -> None:
        for comment in list(self.document.findall(nodes.raw)):
            match = COMMENT.fullmatch(comment.astext().strip())
            if match is None:
                continue
            following = comment.next_node(descend=False, siblings=True)
            if isinstance(following, nodes.paragraph) and isinstance(following[0], nodes.image):
                following.parent.remove(following)
            folder = Path(self.app.outdir)
            page, title = explorer(folder, match[2] or "") if match[1] == "explorer" else reproduction(folder)
            here = self.app.builder.get_target_uri(self.env.docname)
            source = relative_uri(here, page.relative_to(folder).as_posix())
            comment.replace_self(nodes.raw("", FRAME.format(source=escape(source), title=title), format="html"))


def explorer(folder: Path, address: str) -> tuple[Path, str]:
    """The explorer's page at an address, and its title."""
    page = folder / "explorer" / f"{sha256(address.encode()).hexdigest()[:8]}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_of(address, "embedded"), encoding="utf-8")
    return page, "The explorer, live"


def reproduction(folder: Path) -> tuple[Path, str]:
    """The reproduction's page, and a title that says how much of it there is."""
    page = folder / "reproduction" / "index.html"
    if REPRODUCTION.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPRODUCTION, page)
        return page, "The reproduction, all of it"
    reproduce(page.parent, figures=FIGURES, claims=CLAIMS)
    parts = f"Figures {' and '.join(FIGURES)} and {len(CLAIMS)} claims"
    return page, f"A part of the reproduction: {parts} (“make reproduce docs” puts all of it here)"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(LivePages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
