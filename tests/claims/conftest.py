"""Each claim is checked once for all tests that look at its verdict."""

from __future__ import annotations

import pytest

from scansnap.claims.catalog import paper_claims
from scansnap.claims.claim import Claim, Verdict

LONG = ("residual_fates", "theorem_3")
"""Claims that take as long as a dozen others: `make reproduce` tests them."""


def _param(claim: Claim) -> object:
    return pytest.param(claim, id=claim.id, marks=[pytest.mark.slow] if claim.id in LONG else [])


@pytest.fixture(scope="session", params=map(_param, paper_claims()))
def verdict(request: pytest.FixtureRequest) -> Verdict:
    """Each claim in its own setting."""
    return request.param.run()
