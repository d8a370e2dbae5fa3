"""The stability of verdicts: a random part of the stored table is repeated, and a verdict that flips is noticed."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import make_stability
from _site.found import fill

import scansnap as ss
from scansnap.claims.catalog import paper_claims
from scansnap.claims.check import Check, Setting
from scansnap.claims.claim import Claim, claim

DOCS = Path(__file__).parents[2] / "docs"
TABLE: dict[str, Any] = make_stability.stored_rows()
QUICK = [claim for claim in paper_claims() if claim.depends_on != "the classes" and claim.id != "remark_2"]


def test_every_claim_has_its_row_and_the_page_says_which_are_stable() -> None:
    assert list(TABLE) == [claim.id for claim in paper_claims()]
    page = fill((DOCS / "theory" / "index.md").read_text())
    unstable = {row.claim for row in TABLE.values() if not row.stable}
    assert set(re.findall(r"^- `(\w+)` \(", page, re.MULTILINE)) == unstable
    assert f"{len(TABLE) - len(unstable)} of {len(TABLE)} claims keep their verdict in all cases." in page


def test_a_random_part_is_as_stated() -> None:
    """Eight claims that take less than a second, each in one column."""
    draw = random.Random(3)
    for chosen in draw.sample(QUICK, 8):
        own, row = chosen.run(), TABLE[chosen.id]
        assert own.verdict == row.verdict
        name, settings = draw.choice(list(make_stability.variants(chosen.setting()).items()))
        outcomes = {make_stability.outcome(chosen, own, setting) for setting in settings} - {""}
        assert "; ".join(sorted(outcomes)) == row.cells[name], (chosen.id, name)
        assert own.drew == bool(row.cells["seeds"])


def own_claim(**more: Any) -> Claim:
    """A claim that is true at small rates and small seeds only."""

    @claim(where="here", setting=lambda: Setting(ss.syn_small(), lr_y=0.6, lr_z=0.1), **more)
    def small_rate(check: Check) -> None:
        """The rate is small."""
        check.at_most("rate", check.setting.lr_y, 1.0)
        check.at_most("rate of attention", check.setting.lr_z, 0.15, role="corrected")
        check.at_most("seed", float(len(check.seeds(1)) * check.seed), 5.0, role="beyond")

    return small_rate


def test_what_flips_is_noticed() -> None:
    row = make_stability.checked(own_claim())
    assert row.verdict == "holds"
    assert row.cells == {
        "seeds": "holds under its assumptions only; same",
        "η_Y": "fails; same",
        "η_Z": "not as corrected: rate of attention; same",
        "M": "",
        "unequal classes": "",
    }
    assert not row.stable
    excused = make_stability.checked(own_claim(assumes=("decoder_rate",)))
    assert excused.cells["η_Y"] == "assumptions not met; same"
    text = make_stability.found([row])
    assert "\n0 of 1 claims keep" in text
    assert "- `small_rate` (holds): seeds: holds under its assumptions only; same; $\\eta_Y$: fails; same;" in text
    assert "| $\\eta_Y$ | 1 | 0 | 0 |" in text
