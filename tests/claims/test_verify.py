"""`verify`: on the paper's claims and on those that a user makes, in their own settings and on a user's classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.catalog import paper_claims
from scansnap.claims.check import Check, Curve, Setting
from scansnap.claims.claim import FAILS, HOLDS, INAPPLICABLE, NEEDS, Claim, claim
from scansnap.claims.growth import lemma_6


def test_a_claim_that_says_nothing_about_the_classes_says_so() -> None:
    alone = ss.SequenceClasses(probs=[[0.5, 0.5, 0, 0]], query=[2], next_token=[3], vocab_size=4)
    with pytest.raises(ss.InputError, match="theorem_4 says nothing about these classes: it needs exactly one common"):
        ss.verify("theorem_4", classes=alone)
    drawing = ["lemma_1", "lemma_2", "lemma_18", "theorem_2", "theorem_3"]
    drawing += ["heads_prior", "few_tokens", "spurious_tokens", "tf_idf", "finite_length"]
    for verdict in ss.verify(*drawing, classes="near-distinct"):  # they draw sequences of lengths of their own
        assert "it needs tokens that do not depend on their position" in verdict.reason
    seen = []
    verdicts = ss.verify("lemma_6", "theorem_4", classes=alone, on_verdict=seen.append)
    assert [verdict.verdict for verdict in verdicts] == [HOLDS, INAPPLICABLE]
    assert verdicts == seen
    applies, inapplicable = (verdict.as_dict() for verdict in verdicts)
    assert applies["reason"] is None
    assert (inapplicable["reason"], inapplicable["predicted"]) == (verdicts[1].reason, None)
    assert replace(verdicts[0], seconds=0.12345).as_dict()["seconds"] == 0.123


def test_a_check_that_would_hold_too_much_says_so() -> None:
    with pytest.raises(ss.InputError, match="at most 2000 tokens"):
        ss.verify("lemma_1", classes=ss.single_common(vocab_size=2001))


def small() -> Setting:
    return Setting(ss.syn_small(), lr_y=1.0, lr_z=1.0)


def losses(check: Check, steps: int = 5) -> np.ndarray:
    options = {**check.setting.rates, "batch_size": None, "seq_len": np.inf, "dtype": "float64", "progress": False}
    return ss.train(check.setting.classes, steps=steps, **options, record=("loss",))["loss"].values[0]


@claim(where="my notes", setting=small, wrong_factor=-1.0)
def falling_loss(check: Check) -> None:
    """The loss falls at every step.

    Check: Five expected updates.
    """
    loss = losses(check)
    check.positive("decrease of the loss", -np.diff(loss))
    check.equal("the first loss is ln M", np.log(check.setting.classes.vocab_size), loss[0], tolerance=1e-9)
    check.curve = Curve(np.arange(6.0), {"loss": loss}, "steps", "loss", log_x=False)


@claim(where="my notes", setting=small)
def halving_loss(check: Check) -> None:
    """The loss halves at every step."""
    loss = losses(check)
    check.equal("loss", loss[:-1] / 2, loss[1:], tolerance=0.01)


def test_a_verdict_prints_itself() -> None:
    """In full, and as a row; of a user's own claim it says whether the check can fail."""
    holds, fails = ss.verify(claims=[falling_loss, halving_loss])
    lines = str(holds).splitlines()
    assert lines[:2] == ["✓ falling_loss (my notes): holds", "  The loss falls at every step."]
    assert "  how:        Five expected updates." in lines
    (first_loss,) = (line for line in lines if line.startswith("    ok  the first loss is ln M: predicted "))
    assert ", relative error " in first_loss
    assert any(line.endswith("measured 100% positive, share of wrong signs 0 (allowed 0)") for line in lines)
    assert lines[-1] == "  a flipped sign in the prediction would be noticed"
    assert "on your classes and rates" not in str(holds)
    assert "\n    NOT loss: predicted " in str(fails)
    assert str(fails).endswith("\n  a wrong factor of 1.01 in the prediction would NOT be noticed")
    assert holds.row().split()[:4] == ["✓", "falling_loss", "holds", "added"]
    assert holds.row().endswith("  The loss falls at every step.")
    own, other = ss.verify("lemma_6")[0], ss.verify("lemma_6", lr_y=0.2)[0]
    assert "a wrong factor of 1.000001 in the prediction would be noticed" in str(own)
    assert "  on your classes and rates, whatever its category, it is: holds" in str(other).splitlines()
    assert "(formula in K, M and the rates) " in other.row()
    assert "(formula" not in own.row()
    alone = ss.SequenceClasses(probs=[[0.5, 0.5, 0, 0]], query=[2], next_token=[3], vocab_size=4)
    inapplicable = ss.verify("lemma_6", "theorem_4", classes=alone)[1]
    assert str(inapplicable).endswith(f"\n  {inapplicable.reason}")


def test_a_claim_that_holds_and_one_that_fails() -> None:
    seen: list[str] = []
    holds, fails = ss.verify(claims=[falling_loss, halving_loss], on_verdict=lambda verdict: seen.append(verdict.id))
    assert seen == ["falling_loss", "halving_loss"]
    assert (holds.verdict, fails.verdict) == (HOLDS, FAILS)
    assert holds.claim.how == "Five expected updates."
    assert holds.setting.classes == ss.syn_small()
    assert holds.notices_wrong_factor()
    assert not fails.notices_wrong_factor()  # nothing held that could be falsified
    assert fails.leading is not None
    assert fails.leading.deviation > 0.01
    facts = holds.as_dict()
    assert facts["where"] == "my notes"
    assert (facts["deviation"], facts["deviation_is"]) == (0.0, "share of wrong signs")
    assert [row["deviation_is"] for row in facts["measurements"]] == ["share of wrong signs", "relative error"]


def test_names_choose_among_the_paper_s_and_the_user_s() -> None:
    verdicts = ss.verify("Lemma 6", "falling-loss", claims=[halving_loss, falling_loss])
    assert [verdict.id for verdict in verdicts] == ["lemma_6", "falling_loss"]
    with pytest.raises(ss.InputError, match="unknown claim 'faling_loss': did you mean 'falling_loss'"):
        ss.verify("faling_loss", claims=[falling_loss])
    with pytest.raises(ss.InputError, match=r"unknown claim 'theorem_99': choose one of falling_loss, theorem_\d"):
        ss.verify("Theorem 99", claims=[falling_loss])
    with pytest.raises(ss.InputError, match="unknown claim 'falling_loss'"):
        ss.verify("falling_loss")
    assert ss.verify(claims=[]) == []


def test_a_user_s_classes_and_rates_are_used() -> None:
    (verdict,) = ss.verify(claims=[falling_loss], classes=ss.syn_medium(num_query=1), lr_y=0.25)
    assert verdict.setting.classes == ss.syn_medium(num_query=1)
    assert (verdict.setting.lr_y, verdict.setting.lr_z) == (0.25, 1.0)


def test_an_id_cannot_be_taken_twice() -> None:
    with pytest.raises(ss.InputError, match="there is a claim called 'lemma_6' already: give yours another name"):
        ss.verify(claims=[replace(falling_loss, id="lemma_6")])
    with pytest.raises(ss.InputError, match="there is a claim called 'halving_loss' already"):
        ss.verify(claims=[halving_loss, replace(falling_loss, id="halving_loss")])
    (verdict,) = ss.verify(claims=[lemma_6], classes=ss.syn_small())  # the paper's own is no other claim
    assert verdict.claim is lemma_6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: claim(where="here", statement="A")(lambda check: None),
            "a claim is called '<lambda>': define its check with def",
        ),
        (lambda: replace(falling_loss, needs=("one qery",)), "unknown need 'one qery': did you mean 'one query'"),
        (
            lambda: replace(falling_loss, assumes=("week_overlap",)),
            "unknown assumption .*: did you mean 'weak_overlap'",
        ),
        (
            lambda: claim(where="here", statement="A", depends_on="no thing")(losses),
            "unknown depends_on 'no thing': did you mean 'nothing'",
        ),
        (lambda: claim(where="here", statement=3), "statement is 3: give text"),
        (lambda: ss.verify(claims=[falling_loss.check]), r"falling_loss.* is not a claim: make one with the decorator"),
        (lambda: ss.verify(claims=falling_loss), "give a list of claims"),
    ],
)
def test_what_a_claim_cannot_be_is_one_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        make()


def claim_of(check) -> Claim:
    return claim(where="here", statement="A statement.", setting=small)(check)


def test_a_check_that_cannot_be_run_is_named() -> None:
    def forgot(check: Check) -> None:
        check.equal("contrast alone", 1.0, 1.0, tolerance=0.1, role="contrast")

    def mistyped(check: Check) -> None:
        check.equal("a", 1.0, 1.0, tolerance=0.1, role="asumed")  # type: ignore[arg-type]

    def divides(check: Check) -> None:
        check.equal("a", 1 / 0, 1.0, tolerance=0.1)

    def draws(check: Check) -> None:
        check.positive("a", 1.0)
        check.curve = [1, 2]  # type: ignore[assignment]

    def trains(check: Check) -> None:
        ss.train(check.setting.classes, lr_y=-1.0, lr_z=1.0, steps=2)

    def loads(check: Check) -> None:
        ss.load("absent.zarr")

    for check, kind, message in (
        (forgot, ss.InputError, "forgot compares nothing under its assumptions"),
        (mistyped, ss.InputError, "mistyped: unknown role 'asumed': did you mean 'assumed'"),
        (
            divides,
            ss.InputError,
            r"check of divides fails with ZeroDivisionError: division by zero \(test_verify.py",
        ),
        (draws, ss.InputError, "the check of draws fails with TypeError: check.curve is of type list: give a Curve"),
        (trains, ss.InputError, "trains: .*lr_y"),
        (loads, ss.StoreError, "loads: .*absent.zarr"),
    ):
        with pytest.raises(kind, match=message) as caught:
            ss.verify(claims=[claim_of(check)])
        assert str(caught.value).count("\n") == 0
    # among others, what scansnap refuses is a claim that does not apply; a mistake in the code is an error all the same
    refused, fine = ss.verify(claims=[claim_of(trains), falling_loss])
    assert (refused.verdict, fine.verdict) == (INAPPLICABLE, HOLDS)
    assert refused.reason.startswith("trains: ")
    with pytest.raises(ss.InputError, match="the check of divides"):
        ss.verify(claims=[claim_of(divides), falling_loss])


def classes(
    rows: list[list[float]], query: list[int] | None = None, weights: list[float] | None = None
) -> ss.SequenceClasses:
    """Classes of the first tokens; queries 8 and 9, all 8 unless stated, and next tokens from 10 on."""
    probs = np.zeros((len(rows), 16))
    probs[:, : len(rows[0])] = rows
    query, next_token = query or [8] * len(rows), np.arange(10, 10 + len(rows))
    return ss.SequenceClasses(probs=probs, query=query, next_token=next_token, vocab_size=16, weights=weights)


TWO = classes([[0.2, 0.4, 0.4, 0, 0], [0.2, 0, 0, 0.4, 0.4]])
"""Two classes of one query with one common token and two distinct tokens each."""

FOUR = np.hstack([np.full((4, 1), 0.4), 0.6 * np.eye(4)]).tolist()
"""Four classes with one common token and one distinct token each."""


@pytest.mark.parametrize(
    ("need", "has", "lacks"),
    [
        ("several classes", TWO, classes([[0.5, 0.5]])),
        ("a distinct token", classes([[0.4, 0.6, 0], [0.4, 0.5, 0.1]]), classes([[0.4, 0.6], [0.5, 0.5]])),
        ("distinct tokens", classes([[0.2, 0.4, 0.4], [1, 0, 0]]), classes([[0.2, 0.8, 0, 0], [0.2, 0, 0.4, 0.4]])),
        ("distinct tokens everywhere", TWO, classes([[0.2, 0.4, 0.4, 0], [0.2, 0, 0, 0.8]])),
        ("common tokens", TWO, classes([[1, 0], [0, 1]])),
        ("one common token", TWO, classes([[0.2, 0.2, 0.6, 0], [0.2, 0.2, 0, 0.6]])),
        ("one common token", TWO, classes([[1, 0], [0, 1]])),
        ("positions", ss.near_distinct(num_positions=4), TWO),
        ("no positions", TWO, ss.near_distinct(num_positions=4)),
        ("one query", TWO, classes([[0.5, 0.5, 0], [0.5, 0, 0.5]], [8, 9])),
        ("interacting queries", classes([[1, 0], [0.5, 0.5], [0, 1]], [8, 8, 9]), classes([[1, 0], [0, 1]], [8, 9])),
        ("interacting queries", classes([[1, 0], [0.5, 0.5], [0, 1]], [8, 9, 9]), TWO),
        ("symmetric classes", TWO, classes([[0.2, 0.4, 0.4, 0, 0], [0.2, 0, 0, 0.3, 0.5]])),
        ("symmetric classes", classes(FOUR, [9, 8, 9, 8]), classes(FOUR, [8, 8, 8, 9])),
        ("symmetric classes", classes(FOUR, [8, 9, 9, 8]), classes(FOUR[:3], [8, 8, 9])),
        ("symmetric classes", classes(FOUR[:2], [8, 9]), classes(FOUR[:2], [8, 9], [0.5 + 1e-6, 0.5 - 1e-6])),
    ],
)
def test_needs_are_met_from_their_limits_on(need: str, has: ss.SequenceClasses, lacks: ss.SequenceClasses) -> None:
    met = NEEDS[need][1]
    assert met(has)
    assert not met(lacks)


@dataclass(frozen=True)
class Sizes:
    """Classes that have nothing but their number and the size of the vocabulary."""

    num_classes: int = 3
    vocab_size: int = 1600


@pytest.mark.parametrize("claim", paper_claims(), ids=lambda claim: claim.id)
def test_formulas_need_no_more_than_sizes_and_every_other_claim_does(claim: Claim) -> None:
    assert (claim.depends_on == "nothing") == (claim.id == "equation_112")
    sizes: Any = None if claim.depends_on == "nothing" else Sizes()
    if claim.depends_on in ("K, M and the rates", "nothing"):
        assert claim.run(Setting(sizes, lr_y=0.3, lr_z=0.1)).measurements
    else:
        with pytest.raises(
            (AttributeError, ss.InputError), match=r"'Sizes' object has no attribute|(classes|source) is Sizes"
        ):
            claim.run(Setting(sizes))
