"""Pictures of claims."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.figures import claim
from scansnap.figures.style import readable


def test_a_picture_shows_every_line_and_mark() -> None:
    (verdict,) = ss.verify("lemma_9")
    dataset = claim.prepare(verdict)
    assert list(dataset["line"].values) == ["Eq. 85", "measured, modified gradient", "measured, true gradient"]
    figure = claim.draw(dataset)
    (axes,) = figure.axes
    assert len(axes.lines) == 3 + 2  # two marks
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), verdict.curve.lines["Eq. 85"])
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_ylabel() == "speed γ"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(dataset["line"].values)


def test_a_claim_without_a_picture_says_so() -> None:
    (verdict,) = ss.verify("lemma_13")
    with pytest.raises(ss.InputError, match="lemma_13 has no picture"):
        claim.prepare(verdict)


def test_mathematics_is_readable() -> None:
    assert readable("eta_Y >> eta_Z, beta <= 1/sqrt(M) -> 0") == "η_Y ≫ η_Z, β ≤ 1/√(M) → 0"
    assert readable("betas and thetas stay words; |lambda_1|, xi_nl, Gamma") == (
        "betas and thetas stay words; |λ_1|, ξ_nl, Γ"
    )
