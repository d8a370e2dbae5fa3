"""The table of docs/theory/stability.md: a random part of it is repeated, and a verdict that flips is noticed."""

from __future__ import annotations

import random
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np

import scansnap as ss
from scansnap.claims.check import Check, Setting
from scansnap.claims.claim import Claim, claim
from scansnap.claims.verify import paper_claims

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM: dict[str, Any] = runpy.run_path(str(DOCS / "make_stability.py"))
PAGE = (DOCS / "theory" / "stability.md").read_text()
TABLE: dict[str, Any] = PROGRAM["stated"]()
QUICK = [claim for claim in paper_claims() if claim.depends_on != "the classes" and claim.id != "remark_2"]


def test_every_claim_has_its_row_and_keeps_its_verdict() -> None:
    """At every seed, and in every other setting that its assumptions allow."""
    assert list(TABLE) == [claim.id for claim in paper_claims()]
    index = (DOCS / "theory" / "index.md").read_text()
    for name, row in TABLE.items():
        assert re.search(rf"^\| \[`{name}`\].*\| {row.verdict} \|$", index, re.MULTILINE), name
        assert row.seeds in ("", "same 10 of 10"), name
        outcomes = {"same", "same numbers", "no room", "assumptions not met", "does not apply"}
        assert set(row.cells.values()) <= outcomes, name
        assert row.stable
    assert PROGRAM["page"](list(TABLE.values())) == PAGE


def test_a_random_part_is_as_stated() -> None:
    """Twelve claims that take less than a second, each in one other setting or at one other seed."""
    draw = random.Random(3)
    for chosen in draw.sample(QUICK, 12):
        own = chosen.run()
        name, setting = draw.choice(list(PROGRAM["variants"](chosen.setting()).items()))
        assert PROGRAM["outcome"](chosen, own, setting) == TABLE[chosen.id].cells[name], (chosen.id, name)
        seed = draw.randint(1, 9)
        assert PROGRAM["outcome"](chosen, own, chosen.setting(), seed) == "same"
        assert own.drew == (TABLE[chosen.id].seeds == "same 10 of 10")


def own_claim(**more: Any) -> Claim:
    """A claim that is true at small rates and small seeds only."""

    @claim("The rate is small.", where="here", setting=lambda: Setting(ss.syn_small(), lr_y=0.6, lr_z=0.1), **more)
    def small_rate(check: Check) -> None:
        check.at_most("rate", check.setting.lr_y, 1.0)
        check.at_most("rate of attention", check.setting.lr_z, 0.15, role="corrected")
        check.at_most("seed", float(len(check.seeds(1)) * check.seed), 5.0, role="beyond")

    return small_rate


def test_what_flips_is_noticed() -> None:
    row = PROGRAM["checked"](own_claim())
    assert row.verdict == "holds"
    assert row.seeds == "same 6 of 10; holds under its assumptions only"
    assert row.cells == {
        "2 η_Y": "fails",
        "η_Y/2": "same",
        "2 η_Z": "not as corrected: rate of attention",
        "η_Z/2": "same",
        "2 M": "same numbers",
        "M/2": "no room",
    }
    assert not row.stable
    excused = PROGRAM["checked"](own_claim(assumes=("decoder_rate",)))
    assert excused.cells["2 η_Y"] == "assumptions not met"
    assert "\n0 of 1 claims keep" in PROGRAM["page"]([row])


def test_sizes_change_as_the_table_says() -> None:
    changed = PROGRAM["variants"](Setting(ss.single_common(), lr_y=0.5, lr_z=0.05))
    assert [setting.classes.vocab_size for setting in changed.values()] == [1000] * 4 + [2000, 500]
    assert [(setting.lr_y, setting.lr_z) for setting in changed.values()][:4] == [
        (1.0, 0.05),
        (0.25, 0.05),
        (0.5, 0.1),
        (0.5, 0.025),
    ]
    np.testing.assert_array_equal(changed["2 M"].classes.probs[:, :1000], ss.single_common().probs)
    assert PROGRAM["variants"](Setting(ss.near_distinct()))["2 M"] is None
