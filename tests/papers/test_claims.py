"""The claims of all systems: their verdicts, that each row that decides can fail, and how they should read."""

from __future__ import annotations

import pytest

import scansnap as ss
from scansnap.claims.catalog import own_claims, paper_claims

HOLDS, ASSUMED_ONLY, FAILS = "holds", "holds under its assumptions only", "fails"
VERDICTS = {
    "joma_invariants": ASSUMED_ONLY,
    "joma_steps": ASSUMED_ONLY,
    "joma_softmax_estimate": ASSUMED_ONLY,
    "joma_linear_law": HOLDS,
    "joma_homogeneous_law": ASSUMED_ONLY,
    "joma_sparse_then_dense": ASSUMED_ONLY,
    "reversal_chance": HOLDS,
    "reversal_residual": HOLDS,
    "reversal_bilinear_loss": ASSUMED_ONLY,
    "reversal_bilinear_spread": ASSUMED_ONLY,
    "reversal_bilinear_law": HOLDS,
    "reversal_chain": HOLDS,
    "reversal_identity_bridge": ASSUMED_ONLY,
    "att_svm_objectives": HOLDS,
    "one_hot_gaps": HOLDS,
    "support_gaps": HOLDS,
    "direction_overshoots": HOLDS,
    "selected_tokens": ASSUMED_ONLY,
    "token_priority": ASSUMED_ONLY,
    "sink_growth": HOLDS,
    "sink_halves": ASSUMED_ONLY,
    "sink_layer": HOLDS,
    "sink_sgd": FAILS,
}
QUICK = ("joma_invariants", "joma_steps", "joma_homogeneous_law", "joma_softmax_estimate", "reversal_bilinear_spread",
         "att_svm_objectives", "one_hot_gaps", "support_gaps", "direction_overshoots", "selected_tokens",
         "token_priority", "sink_growth")  # fmt: skip


def test_every_claim_of_a_system_is_listed_here() -> None:
    assert set(own_claims()) - {claim.id for claim in paper_claims()} == set(VERDICTS)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in VERDICTS])
def test_claims_have_their_verdicts_and_notice_wrong_predictions(name: str) -> None:
    (found,) = ss.verify(name, progress=False)
    assert found.verdict == VERDICTS[name]
    assert found.notices_wrong_factor()
    assert all(entry.holds for entry in found.measurements if entry.role == "corrected")
