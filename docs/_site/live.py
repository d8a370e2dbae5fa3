"""Pages that run inside a page of the site.

    <!-- live: explorer #classes=syn-small&lr_y=1 -->
    ![what it looks like](images/explorer.png)

Where a page is read elsewhere, the comment is not seen and the picture is; on the site the explorer takes the place of
the picture, with its controls as the address says.  `<!-- live: reproduction -->` shows the page of the reproduction.
"""

from __future__ import annotations

import re
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.osutil import relative_uri

from _site import reproduction
from scansnap.explorer.page import page_of

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
            page, title = explorer(folder, match[2] or "") if match[1] == "explorer" else reproduction.build(folder)
            here = self.app.builder.get_target_uri(self.env.docname)
            source = relative_uri(here, page.relative_to(folder).as_posix())
            comment.replace_self(nodes.raw("", FRAME.format(source=escape(source), title=title), format="html"))


def explorer(folder: Path, address: str) -> tuple[Path, str]:
    """The explorer's page at an address, and its title."""
    page = folder / "explorer" / f"{sha256(address.encode()).hexdigest()[:8]}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_of(address, "embedded"), encoding="utf-8")
    return page, "The explorer, live"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(LivePages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
