"""Rows of the disagreements can be linked to: entry 30 is disagreements.html#entry-30."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from _site.reproduction import DISAGREEMENTS, anchor


class Entries(SphinxTransform):
    """Give every row that begins with a number an address."""

    default_priority = 900

    def apply(self, **kwargs: Any) -> None:
        if self.env.docname == DISAGREEMENTS:
            for row in self.document.findall(nodes.row):
                if row[0].astext().isdigit():
                    row["ids"].append(anchor(row[0].astext()))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(Entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
