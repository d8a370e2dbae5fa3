"""Every claim: its verdict is the one the documents state, and a wrong prediction is noticed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.check import Check, Setting
from scansnap.claims.claim import ASSUMED_ONLY, CATEGORIES, FAILS, HOLDS, INAPPLICABLE, Verdict, is_symmetric
from scansnap.claims.population import State
from scansnap.claims.verify import paper_claims
from scansnap.dynamics.train import train
from scansnap.runtime.formulas import readable

PAGE = Path(__file__).parents[2] / "docs" / "theory" / "index.md"
IDS = [claim.id for claim in paper_claims()]


def stated() -> dict[str, str]:
    """Verdicts in the table of docs/theory/index.md."""
    rows = re.findall(r"^\| \[?`(\w+)`\]?\S* \|.*\| ([a-z ]+) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: verdict.strip() for name, verdict in rows}


def test_every_statement_of_the_paper_is_there() -> None:
    """Each by its number; what else the paper says is counted in test_coverage.py."""
    counts = {"lemma": 18, "theorem": 5, "corollary": 2, "remark": 4}
    assert {f"{kind}_{i}" for kind, last in counts.items() for i in range(1, last + 1)} <= set(IDS)
    assert set(stated()) == set(IDS)


def test_the_verdict_is_the_one_stated_and_a_wrong_prediction_is_noticed(verdict: Verdict) -> None:
    claim, name = verdict.claim, verdict.id
    assert verdict.verdict == stated()[name]
    corrected = [measurement.holds for measurement in verdict.measurements if measurement.role == "corrected"]
    assert all(corrected)
    if verdict.verdict == FAILS:
        assert claim.correction
        assert corrected
    assert verdict.seconds == 0  # only `verify` measures them
    plain = json.loads(json.dumps(verdict.as_dict()))
    assert (plain["id"], plain["category"]) == (name, claim.category)
    assert plain["correction"] == readable(claim.correction) if claim.correction else plain["correction"] is None
    assert verdict.notices_wrong_factor()


def test_categories_go_with_verdicts() -> None:
    allowed = {
        "misprint": {FAILS},
        "error": {FAILS},
        "holds": {HOLDS},
        "sharpened": {HOLDS, ASSUMED_ONLY},
        "added": {HOLDS},
        "holds under its assumptions": {ASSUMED_ONLY},
        "too strong": {ASSUMED_ONLY, FAILS},
        "fails under true SGD": {ASSUMED_ONLY, FAILS},
    }
    assert set(allowed) == set(CATEGORIES)
    page, verdicts = PAGE.read_text(), stated()
    for claim in paper_claims():
        assert verdicts[claim.id] in allowed[claim.category], claim.id
        assert re.search(rf"^\| \[`{claim.id}`\].* \| {claim.category} \| [a-z ]+ \|$", page, re.MULTILINE), claim.id


def test_own_classes_and_rates_are_used() -> None:
    (verdict,) = ss.verify("theorem_2", classes=ss.syn_small(), lr_y=1.0, lr_z=0.25)
    assert verdict.setting.classes == ss.syn_small()
    assert verdict.setting.lr_z == 0.25
    assert verdict.verdict in (HOLDS, "holds under its assumptions only", FAILS)


def test_a_claim_that_says_nothing_about_the_classes_says_so() -> None:
    alone = ss.SequenceClasses(probs=[[0.5, 0.5, 0, 0]], query=[2], next_token=[3], vocab_size=4)
    with pytest.raises(ss.InputError, match="theorem_4 says nothing about these classes: it needs exactly one common"):
        ss.verify("theorem_4", classes=alone)
    seen = []
    verdicts = ss.verify("lemma_6", "theorem_4", classes=alone, on_verdict=seen.append)
    assert [verdict.verdict for verdict in verdicts] == [HOLDS, INAPPLICABLE]
    assert verdicts == seen
    applies, inapplicable = (verdict.as_dict() for verdict in verdicts)
    assert applies["reason"] is None
    assert (inapplicable["reason"], inapplicable["predicted"]) == (verdicts[1].reason, None)
    assert replace(verdicts[0], seconds=0.12345).as_dict()["seconds"] == 0.123


def test_progress_counts_the_claims_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []

    @contextmanager
    def bar(label: str, total: int, progress: bool | None) -> Iterator[Callable[[int], None]]:
        shown.append((label, total, progress))
        yield shown.append

    monkeypatch.setattr(sys.modules["scansnap.claims.verify"], "progress_bar", bar)
    ss.verify("lemma_6", "lemma_8", progress=True)
    ss.verify("lemma_6")
    assert shown == [("checking 2 claims", 2, True), 1, 2, ("checking 1 claim", 1, None), 1]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ss.InputError, match="unknown claim 'lema_1': did you mean 'lemma_1'"):
        ss.verify("lema_1")
    with pytest.raises(ss.InputError, match="classes is list"):
        ss.verify("lemma_1", classes=[1])  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="lr_z holds 0"):
        ss.verify("lemma_1", lr_z=0.0)
    with pytest.raises(ss.InputError, match="at most 2000 tokens"):
        ss.verify("lemma_1", classes=ss.single_common(vocab_size=2001))


def test_comparisons_judge_as_they_should() -> None:
    check = Check(Setting(ss.syn_small()))
    check.equal("equal", [1.0, 2.0], [1.0, 2.1], tolerance=0.04)
    check.equal("not equal", [1.0, 2.0], [1.0, 2.1], tolerance=0.06)
    check.at_most("above", [1.0, 3.0], [2.0, 2.0])
    check.at_most("below", [1.0, 2.0], 2.0)
    check.at_least("short", [1.0, 3.0], 2.0)
    check.at_least("long", [2.0, 3.0], 2.0)
    check.positive("one wrong in four", [1, 2, 3, -1])
    check.positive("one in four is allowed", [1, 2, 3, -1], allowed=0.25)
    check.within("half outside", [1.0, 3.0], 2.0, failure=0.4)
    check.equal("nothing is equal to NaN", np.nan, 1.0, tolerance=1.0)
    assert [measurement.holds for measurement in check.measurements] == [
        False,
        True,
        False,
        True,
        False,
        True,
        False,
        True,
        False,
        False,
    ]
    assert check.measurements[0].predicted == 2.0
    assert check.measurements[2].measured == 3.0
    assert check.measurements[6].deviation == 0.25


def test_state_velocity_is_a_step_of_training() -> None:
    """The claims' population gradient against one step of the engine, from a state after ten."""
    classes = ss.syn_medium(num_query=3)
    result = train(
        classes,
        lr_y=0.5,
        lr_z=0.25,
        steps=11,
        batch_size=None,
        seq_len=np.inf,
        dtype="float64",
        record=("attention_logits", "decoder"),
    ).isel(run=0, layer=0, head=0)
    before, after = result.sel(step=10), result.sel(step=11)
    dy, dz = State(classes, before["decoder"].values, before["attention_logits"].values).velocity()
    np.testing.assert_allclose(after["decoder"].values - before["decoder"].values, 0.5 * dy, atol=1e-14)
    moved = after["attention_logits"].values - before["attention_logits"].values
    np.testing.assert_allclose(moved, 0.25 * dz, atol=1e-14)


def test_symmetric_classes_are_recognized() -> None:
    assert is_symmetric(ss.syn_medium(num_query=3))
    uneven = ss.SequenceClasses(
        probs=[[0.5, 0.5, 0, 0, 0, 0], [0.4, 0, 0.6, 0, 0, 0]], query=[3, 3], next_token=[4, 5], vocab_size=6
    )
    assert not is_symmetric(uneven)
