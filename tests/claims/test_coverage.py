"""The paper's own names find claims, or the reason why there is none."""

from __future__ import annotations

import pytest

import scansnap as ss
from scansnap.claims.coverage import claims_at


@pytest.mark.parametrize(
    ("place", "ids"),
    [
        ("Eq. 5", None),
        ("Eq. 9", ["theorem_1"]),
        ("eq 9", ["theorem_1"]),
        ("Equation (93)", ["equation_93"]),
        ("Lemma 3", ["lemma_3", "lemma_3_rate"]),
        ("lemma  3", ["lemma_3", "lemma_3_rate"]),
        ("Lemma 1", ["lemma_1"]),
        ("Section 6 (b)", ["section_6_b"]),
    ],
)
def test_a_place_of_the_paper_names_its_claims(place: str, ids: list[str] | None) -> None:
    if ids is None:
        with pytest.raises(ss.InputError, match=r"^no claim is about Eq\. 5 \(attention per token\): definition\.$"):
            claims_at(place)
    else:
        assert claims_at(place) == ids


@pytest.mark.parametrize(
    "place", ["theorem", "Theorem", "Eq. 139", "Eq.", "Lemma", "Lemma 19", "Section", "", "lemma_3"]
)
def test_what_the_paper_has_not_is_no_place(place: str) -> None:
    assert claims_at(place) is None


def test_a_place_without_claim_names_its_figure() -> None:
    with pytest.raises(ss.InputError, match="see scansnap figure 8"):
        claims_at("Figure 8")


def test_verify_takes_places_of_the_paper() -> None:
    assert [verdict.id for verdict in ss.verify("Eq. 10", "lemma_4", "lemma-6", progress=False)] == [
        "lemma_4",
        "lemma_6",
    ]
    with pytest.raises(ss.InputError, match="unknown claim 'theorem': did you mean"):
        ss.verify("theorem")
