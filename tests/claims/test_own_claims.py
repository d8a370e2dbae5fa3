"""Claims that a user makes: they are checked like the paper's, and never become some of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.attention import theorem_2
from scansnap.claims.check import Check, Curve, Setting
from scansnap.claims.claim import ASSUMED_ONLY, FAILS, HOLDS, INAPPLICABLE, Claim, claim
from scansnap.claims.verify import paper_claims


def small() -> Setting:
    return Setting(ss.syn_small(), lr_y=1.0, lr_z=1.0)


def losses(check: Check, steps: int = 5) -> np.ndarray:
    setting = check.setting
    dataset = ss.train(
        setting.classes,
        lr_y=setting.lr_y,
        lr_z=setting.lr_z,
        steps=steps,
        batch_size=None,
        seq_len=np.inf,
        record=("loss",),
        dtype="float64",
        progress=False,
    )
    return dataset["loss"].values[0]


@claim("The loss falls at every step.", where="my notes", setting=small, wrong_factor=-1.0)
def falling_loss(check: Check) -> None:
    """Five expected updates."""
    loss = losses(check)
    check.positive("decrease of the loss", -np.diff(loss))
    check.equal("the first loss is ln M", np.log(check.setting.classes.vocab_size), loss[0], tolerance=1e-9)
    check.curve = Curve(np.arange(6.0), {"loss": loss}, "steps", "loss", log_x=False)


@claim("The loss halves at every step.", where="my notes", setting=small)
def halving_loss(check: Check) -> None:
    loss = losses(check)
    check.equal("loss", loss[:-1] / 2, loss[1:], tolerance=0.01)


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
    assert holds.as_dict()["where"] == "my notes"


def test_names_choose_among_the_paper_s_and_the_user_s() -> None:
    verdicts = ss.verify("lemma_6", "falling_loss", claims=[halving_loss, falling_loss])
    assert [verdict.id for verdict in verdicts] == ["lemma_6", "falling_loss"]
    with pytest.raises(ss.InputError, match="unknown claim 'faling_loss': did you mean 'falling_loss'"):
        ss.verify("faling_loss", claims=[falling_loss])
    with pytest.raises(ss.InputError, match="unknown claim 'falling_loss'"):
        ss.verify("falling_loss")
    assert ss.verify(claims=[]) == []


def test_making_a_claim_does_not_list_it_among_the_paper_s() -> None:
    assert len(paper_claims()) == 68
    assert not {"falling_loss", "halving_loss"} & {paper_claim.id for paper_claim in paper_claims()}


def test_a_user_s_classes_and_rates_are_used() -> None:
    (verdict,) = ss.verify(claims=[falling_loss], classes=ss.syn_medium(num_query=1), lr_y=0.25)
    assert verdict.setting.classes == ss.syn_medium(num_query=1)
    assert (verdict.setting.lr_y, verdict.setting.lr_z) == (0.25, 1.0)


def test_an_id_cannot_be_taken_twice() -> None:
    with pytest.raises(ss.InputError, match="there is a claim called 'theorem_2' already: give yours another name"):
        ss.verify(claims=[replace(falling_loss, id="theorem_2")])
    with pytest.raises(ss.InputError, match="there is a claim called 'halving_loss' already"):
        ss.verify(claims=[halving_loss, replace(falling_loss, id="halving_loss")])
    (verdict,) = ss.verify(claims=[theorem_2], classes=ss.syn_small())  # the paper's own is no other claim
    assert verdict.claim is theorem_2


def test_a_second_definition_is_refused_and_a_repeated_one_is_not() -> None:
    source = """
@claim("A", where="here")
def same(check): check.positive("one", [1])
"""
    names = {"claim": claim}
    code = compile(source, "cell", "exec")
    exec(code, names)
    first = names["same"]
    exec(compile(source, "cell", "exec"), names)  # as a notebook's cell that is run again
    assert names["same"] is not first
    with pytest.raises(ss.InputError, match="there is a claim called 'same' already: give this one another name"):
        exec(source + source, {"claim": claim})


def test_what_a_claim_cannot_be_is_one_sentence() -> None:
    with pytest.raises(ss.InputError, match="a claim is called '<lambda>': define its check with def"):
        claim("A", where="here")(lambda check: None)
    with pytest.raises(ss.InputError, match="unknown need 'one qery': did you mean 'one query'"):
        replace(falling_loss, needs=("one qery",))  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="unknown assumption 'week_overlap': did you mean 'weak_overlap'"):
        replace(falling_loss, assumes=("week_overlap",))  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="unknown dependence 'no thing': did you mean 'nothing'"):
        replace(falling_loss, depends_on="no thing")  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="falling_loss has 3 in place of words: give a string"):
        replace(falling_loss, statement=3)  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="a curve has 3 in place of a label: give a string"):
        Curve(np.arange(3.0), {3: np.arange(3.0)}, "x", "y")  # type: ignore[dict-item]
    with pytest.raises(ss.InputError, match="a comparison has 3 in place of a label: give a string"):
        Check(small()).positive(3, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match="lr_y holds -1"):
        Setting(ss.syn_small(), lr_y=-1.0)
    with pytest.raises(ss.InputError, match=r"the line 'b' of a curve has shape \(2,\) over an x axis of shape \(3,\)"):
        Curve(np.arange(3.0), {"a": np.arange(3.0), "b": np.arange(2.0)}, "x", "y")
    with pytest.raises(ss.InputError, match="unknown line 'b': choose one of a"):
        Curve(np.arange(3.0), {"a": np.arange(3.0)}, "x", "y", dots=("b",))
    with pytest.raises(ss.InputError, match="a curve has no lines"):
        Curve(np.arange(3.0), {}, "x", "y")
    with pytest.raises(ss.InputError, match=r"falling_loss.* is not a claim: make one with the decorator"):
        ss.verify(claims=[falling_loss.check])  # type: ignore[list-item]
    with pytest.raises(ss.InputError, match="give a list of claims"):
        ss.verify(claims=falling_loss)  # type: ignore[arg-type]


def claim_of(check) -> Claim:
    return claim("A statement.", where="here", setting=small)(check)


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
            r"check of divides fails with ZeroDivisionError: division by zero \(test_own_claims.py",
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


def test_a_setting_that_cannot_be_made_is_named() -> None:
    def broken() -> Setting:
        return Setting(ss.syn_small(), lr_z=0.0)

    def nonsense() -> Setting:
        return 3  # type: ignore[return-value]

    with pytest.raises(ss.InputError, match="falling_loss: lr_z holds 0"):
        ss.verify(claims=[replace(falling_loss, setting=broken), halving_loss])
    with pytest.raises(ss.InputError, match="the check of falling_loss fails with AttributeError: 'int' object"):
        ss.verify(claims=[replace(falling_loss, setting=nonsense)])


def test_needs_and_roles_work_as_for_the_paper_s() -> None:
    def sometimes(check: Check) -> None:
        check.positive("always", 1.0)
        check.positive("not beyond", -1.0, role="beyond")

    only = claim_of(sometimes)
    assert ss.verify(claims=[only])[0].verdict == ASSUMED_ONLY
    with pytest.raises(ss.InputError, match="sometimes says nothing about these classes: it needs one query"):
        ss.verify(claims=[replace(only, needs=("one query",))])
