"""One self-contained page with verdicts on claims, the paper's or a user's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scansnap.claims.check import ROLES
from scansnap.claims.claim import Verdict
from scansnap.figures import claim as picture
from scansnap.report import html
from scansnap.report.citations import Citations
from scansnap.results.provenance import provenance
from scansnap.runtime.errors import InputError, StoreError


def check_page(page: Path) -> None:
    """Refuse a file that is no page, or that scansnap did not write, before the claims are checked."""
    if page.suffix.lower() != ".html" or page.is_dir():
        raise InputError(f"the page is '{page}': give a file whose name ends in .html.")
    if page.exists() and not html.is_ours(page):
        raise StoreError(f"{page} is a file that scansnap did not write: give another name.")


def write_claims_page(page: Path, verdicts: Sequence[Verdict]) -> None:
    """Write a page with each claim's statement, verdict, measurements and picture."""
    check_page(page)
    pictures = {
        verdict.id: html.png(picture.draw(picture.prepare(verdict))) for verdict in verdicts if not verdict.reason
    }
    html.write_page(
        page,
        html.render(
            "claims_page.html.jinja",
            verdicts=verdicts,
            counts=html.counted(verdicts),
            pictures=pictures,
            roles=ROLES,
            cite=Citations([verdict.claim for verdict in verdicts]).link,
            environment=provenance(),
        ),
    )
