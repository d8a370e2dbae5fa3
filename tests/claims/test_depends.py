"""What a claim depends on is what its field says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import scansnap as ss
from scansnap.claims import Claim, Setting, claims
from scansnap.claims.claim import DEPENDS
from scansnap.cli.verify import _row


@dataclass(frozen=True)
class Sizes:
    """Classes of which nothing is known but their number and the vocabulary."""

    num_classes: int = 3
    vocab_size: int = 1600


FORMULAS = {
    "lemma_6",
    "lemma_7",
    "lemma_8",
    "lemma_10",
    "lemma_11",
    "remark_2",
    "equation_112",
    "equation_132",
    "figure_9",
}


@pytest.mark.parametrize("claim", claims(), ids=lambda one: one.id)
def test_formulas_need_no_more_than_sizes_and_every_other_claim_does(claim: Claim) -> None:
    sizes: Any = Sizes()
    assert (claim.depends_on in ("K, M and the rates", "nothing")) == (claim.id in FORMULAS)
    if claim.id in FORMULAS:
        assert claim.run(Setting(sizes, lr_y=0.3, lr_z=0.1)).measurements
    else:
        with pytest.raises((AttributeError, ss.InputError), match=r"'Sizes' object has no attribute|classes is Sizes"):
            claim.run(Setting(sizes))


def test_what_depends_on_nothing_needs_no_classes() -> None:
    nothing: Any = None
    found = [one.id for one in claims() if one.depends_on == "nothing"]
    assert found == ["equation_112"]
    assert ss.claims.claim.CLAIMS["equation_112"].run(Setting(nothing)).measurements


def test_random_matrices_are_measured_beside_the_classes() -> None:
    """Those of classes that do not overlap, too; and the classes' own first where they do."""
    apart = ss.SequenceClasses(probs=[[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]], query=[2, 2], next_token=[3, 4], vocab_size=5)
    marked = [one.id for one in claims() if one.depends_on == "the classes and random matrices"]
    assert marked == ["lemma_13", "lemma_14", "lemma_15", "lemma_16", "lemma_17", "equation_93"]
    for alone, own in zip(ss.verify(*marked, classes=apart), ss.verify(*marked), strict=True):
        assert all("200 random matrices" in one.label for one in alone.measurements)
        assert "the setting" in own.measurements[0].label


def test_it_is_said_to_those_who_bring_classes() -> None:
    (verdict,) = ss.verify("lemma_10", classes=ss.syn_small())
    assert verdict.as_dict()["depends_on"] == "K, M and the rates"
    assert "(formula in K, M and the rates) A class is drawn" in _row(verdict, own=True)
    assert "formula" not in _row(verdict, own=False)
    (about_them,) = ss.verify("definition_e_prime", classes=ss.syn_small())
    assert _row(about_them, own=True) == _row(about_them, own=False)
    assert all(one.depends_on in DEPENDS for one in claims())
