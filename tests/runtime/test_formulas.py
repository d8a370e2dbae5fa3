"""Mathematics in texts: the same on a terminal and on a page, and never markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from scansnap.claims.catalog import own_claims
from scansnap.runtime.formulas import FORMULA, readable, typeset

TEXTS = {
    (claim.id, field): getattr(claim, field)
    for claim in own_claims().values()
    for field in ("statement", "conditions", "correction")
}


@pytest.mark.parametrize(
    ("text", "signs"),
    [
        ("eta_Y >> eta_Z, beta <= 1/sqrt(M) -> 0", "η_Y ≫ η_Z, β ≤ 1/√(M) → 0"),
        ("betas and thetas stay words; |lambda_1|, xi_nl, Gamma", "betas and thetas stay words; |λ_1|, ξ_nl, Γ"),
        (r"with $\eta_Y \gg \eta_Z$ and chi", "with η_Y ≫ η_Z and χ"),
        (r"$\frac{1}{4} \ln(1 + 4 \Gamma/C_0)$", "1/4 ln(1 + 4 Γ/C_0)"),
        (r"$\frac{a + b}{2}$, $x^2$, $x^{-0.99}$, $e^{4z}$, $h^*(s)$", "(a + b)/2, x², x^-0.99, e^(4z), h*(s)"),
        (r"$\lvert \lambda_1\rvert \le \sqrt{\ln M}$", "|λ_1| ≤ √(ln M)"),
        (r"$x_{T+1}$, $\beta_{nn'}$, $f_{n'l}$, $\bar N$", "x_{T+1}, β_nn', f_n'l, N̄"),
        (r"$A \leadsto C$ if $\mu^2 \geq \partial v$", "A ⤳ C if μ² ≥ ∂ v"),
        ("it costs $5 and $6 at most", "it costs $5 and $6 at most"),
        (r"$\href{x}{y}$ and $\frac{$ and $a}$", r"$\href{x}{y}$ and $\frac{$ and $a}$"),
    ],
)
def test_a_line_of_signs(text: str, signs: str) -> None:
    assert readable(text) == signs


TAGS = "p i sub sup math mrow mi mn mo msub msup msubsup mfrac msqrt mover mspace"


def test_every_formula_of_the_claims_is_one() -> None:
    """Each is typeset by MathML alone, and nothing of LaTeX is left in either form."""
    formulas = 0
    for where, text in TEXTS.items():
        assert not re.search(r"[\\$]", readable(text)), where
        page = str(typeset(text))
        assert not re.search(r"[\\$]", page), where
        tree = ElementTree.fromstring(f"<p>{page.replace('<wbr>', ' ')}</p>")
        assert {node.tag for node in tree.iter()} <= {*TAGS.split()}, where
        assert page.count("<math>") - page.count("<wbr>") == len(FORMULA.findall(text)), where
        formulas += page.count("<math>")
    assert formulas > 200


LATEX = ("$<script>$", r"$\text{<script>}$", r"$\mathrm{<script>}$", "$a & b$", "$_a$", "$a^b^c$")
HOSTILE = ("<script>", "a & b_1", '$x$"', *LATEX)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_becomes_markup(text: str) -> None:
    page = str(typeset(text))
    assert "<script" not in page
    ElementTree.fromstring(f"<p>{page.replace('<wbr>', ' ')}</p>")


def test_long_formulas_may_break() -> None:
    page = str(typeset(r"$-a \le \lvert b - c\rvert^{-1} + 2 (u + v)$"))
    assert [len(re.findall("<m[ion]>|<mo ", piece)) for piece in page.split("<wbr>")] == [3, 8, 6]
    assert "<wbr>" not in typeset(r"$T \to \infty$")


def test_letters_outside_of_formulas_have_their_index_below() -> None:
    assert typeset("eta_Y of lemma_6, f_nl^2 and t'_0") == (
        "<i>η</i><sub>Y</sub> of lemma_6, <i>f</i><sub>nl</sub><sup>2</sup> and <i>t</i>&#39;<sub>0</sub>"
    )
    assert typeset("2eta_Y/M up to 10^9") == "2<i>η</i><sub>Y</sub>/M up to 10<sup>9</sup>"
    assert typeset("theory.symmetric_flow, lr_y, e^(2k)") == "theory.symmetric_flow, lr_y, <i>e</i><sup>2k</sup>"
