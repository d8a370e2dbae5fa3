"""What Sphinx and the theme leave to be done for keyboards and screen readers; axe-core reports each of these."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

CAPTION = ('role="heading">', 'role="heading" aria-level="2">')
"""A heading has a level."""

CODE = ("<pre>", '<pre tabindex="0">')
"""What scrolls can be scrolled with the keyboard."""

FOLD = ('<summary aria-label="Toggle hidden content">', "<summary>")
"""A fold is called what is written on it."""

SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.DOTALL)
"""Its parameters, one on a line, are no list of definitions: there are no terms."""


def _improve(app: Sphinx, page: str, template: str, context: dict[str, Any], document: Any) -> None:
    for name in ("furo_navigation_tree", "toctree_html"):
        if isinstance(context.get(name), str):
            context[name] = context[name].replace(*CAPTION)
    if "body" in context:
        body = context["body"].replace(*CODE).replace(*FOLD)
        context["body"] = SIGNATURE.sub(lambda match: _as_lines(match[0]), body)


def _as_lines(signature: str) -> str:
    lines = re.sub(r"<(/?)d[ld]>", r"<\1div>", signature)
    return lines.replace("<div>", '<div class="parameters">', 1)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", _improve, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
