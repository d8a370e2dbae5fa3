"""Every lemma, theorem and corollary of the paper as a check of theory against dynamics."""

from scansnap.claims.claim import Claim as Claim
from scansnap.claims.claim import Setting as Setting
from scansnap.claims.claim import Verdict as Verdict
from scansnap.claims.verify import claims as claims
from scansnap.claims.verify import verify as verify
