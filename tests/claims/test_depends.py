"""What a claim depends on is what its field says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import scansnap as ss
from scansnap.claims.attention import equation_112
from scansnap.claims.check import Setting
from scansnap.claims.claim import DEPENDS, Claim
from scansnap.claims.verify import paper_claims
from scansnap.cli.verify import _categories, _explanation, _row


@dataclass(frozen=True)
class Sizes:
    """Classes that have nothing but their number and the size of the vocabulary."""

    num_classes: int = 3
    vocab_size: int = 1600


FORMULAS = {
    "lemma_6",
    "lemma_7",
    "lemma_7_shift",
    "lemma_8",
    "lemma_10",
    "lemma_11",
    "remark_2",
    "remark_2_start",
    "remark_3",
    "remark_3_order",
    "remark_4",
    "appendix_f_orders",
    "corollary_1_sigma",
    "theorem_1_b",
    "equation_112",
    "equation_132",
    "equation_133",
    "figure_9",
}


@pytest.mark.parametrize("claim", paper_claims(), ids=lambda claim: claim.id)
def test_formulas_need_no_more_than_sizes_and_every_other_claim_does(claim: Claim) -> None:
    sizes: Any = Sizes()
    assert (claim.depends_on in ("K, M and the rates", "nothing")) == (claim.id in FORMULAS)
    if claim.id in FORMULAS:
        assert claim.run(Setting(sizes, lr_y=0.3, lr_z=0.1)).measurements
    else:
        with pytest.raises(
            (AttributeError, ss.InputError), match=r"'Sizes' object has no attribute|(classes|source) is Sizes"
        ):
            claim.run(Setting(sizes))


def test_what_depends_on_nothing_needs_no_classes() -> None:
    nothing: Any = None
    ids = [claim.id for claim in paper_claims() if claim.depends_on == "nothing"]
    assert ids == ["equation_112"]
    assert equation_112.run(Setting(nothing)).measurements


def test_random_matrices_are_measured_beside_the_classes() -> None:
    """Also for classes that do not overlap; for those that do, their own matrix comes first."""
    apart = ss.SequenceClasses(probs=[[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]], query=[2, 2], next_token=[3, 4], vocab_size=5)
    marked = [claim.id for claim in paper_claims() if claim.depends_on == "the classes and random matrices"]
    assert marked == ["lemma_13", "lemma_14", "lemma_15", "lemma_16", "lemma_17", "equation_93"]
    for alone, own in zip(ss.verify(*marked, classes=apart), ss.verify(*marked), strict=True):
        assert all("200 random matrices" in measurement.label for measurement in alone.measurements)
        assert "the setting" in own.measurements[0].label


def test_categories_are_shown_and_counted() -> None:
    verdicts = ss.verify("lemma_6", "lemma_10", "remark_3", "remark_3_order")
    assert [verdict.claim.category in _row(verdict, own_classes=False) for verdict in verdicts] == [True] * 4
    assert _categories(verdicts) == "by category: 1 misprint; 1 too strong; 2 sharpened"


def test_users_with_their_own_classes_are_told() -> None:
    (verdict,) = ss.verify("lemma_10", classes=ss.syn_small())
    assert verdict.as_dict()["depends_on"] == "K, M and the rates"
    assert "(formula in K, M and the rates) A class is drawn" in _row(verdict, own_classes=True)
    assert "formula" not in _row(verdict, own_classes=False)
    assert f"on your classes and rates, whatever its category, it is: {verdict.verdict}" in _explanation(
        verdict, own_claim=False
    )
    (about_them,) = ss.verify("definition_e_prime", classes=ss.syn_small())
    assert _row(about_them, own_classes=True) == _row(about_them, own_classes=False)
    assert all(claim.depends_on in DEPENDS for claim in paper_claims())
