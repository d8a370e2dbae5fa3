"""What was found stands on pages as marks, which become text when Sphinx reads a page.

    <!-- found: lemma_1 -->

A mark names a claim, a figure of text, or `every_claim`, `coverage`, `figures`, `headline` or `stability`.  The text
comes from the measurements in docs/data, which `make documents`, docs/make_stability.py and docs/make_text.py write.
"""

from __future__ import annotations

import functools
from typing import Any

import make_documents
import make_figures
import make_stability
import make_text
import make_theory
from sphinx.application import Sphinx
from stored_numbers import read_reproduction

from scansnap.report.reproduction import headline


@functools.cache
def found() -> dict[str, str]:
    """The text of every mark."""
    reproduction = read_reproduction()
    return {
        **make_theory.found(reproduction.verdicts),
        "figures": make_figures.found(reproduction.figures),
        "headline": make_documents.summary(headline(reproduction)),
        **make_text.found(),
        "stability": make_stability.found(list(make_stability.stored_rows().values())),
    }


def fill(text: str) -> str:
    """A page with texts in place of its marks."""
    return make_theory.FOUND.sub(lambda mark: found()[mark[1]], text)


def _fill_page(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", _fill_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
