"""Each claim is checked once for all tests that look at its verdict."""

from __future__ import annotations

import pytest

from scansnap.claims import Verdict, claims


@pytest.fixture(scope="session", params=claims(), ids=lambda claim: claim.id)
def verdict(request: pytest.FixtureRequest) -> Verdict:
    """Each claim in its own setting."""
    return request.param.run()
