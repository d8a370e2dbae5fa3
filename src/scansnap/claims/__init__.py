"""Claims: the paper's lemmas, theorems and corollaries, and a user's own, as checks of theory against dynamics."""

from scansnap.claims.check import Setting as Setting
from scansnap.claims.claim import Claim as Claim
from scansnap.claims.claim import Verdict as Verdict
from scansnap.claims.paper import claims as claims
from scansnap.claims.verify import verify as verify
