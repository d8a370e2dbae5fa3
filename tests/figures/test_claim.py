"""Pictures of claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.claim import CLAIMS, ROLES, Check, Curve, Setting, Verdict
from scansnap.figures import claim
from scansnap.figures.style import COLOURS, readable


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


def test_points_that_are_no_line_are_not_joined() -> None:
    (verdict,) = ss.verify("lemma_13")
    dataset = claim.prepare(verdict)
    (axes,) = claim.draw(dataset).axes
    found, bound = axes.lines
    assert (found.get_linestyle(), found.get_marker()) == ("None", "o")
    assert (bound.get_linestyle(), bound.get_marker()) == ("--", "None")
    np.testing.assert_array_equal(found.get_xdata(), verdict.curve.x)


def judged(*measure) -> Verdict:
    """A verdict of lemma_3 with measurements of one's own and no curve."""
    check = Check(Setting(ss.syn_small()))
    for one in measure:
        one(check)
    return Verdict(CLAIMS["lemma_3"], check.setting, tuple(check.measurements), None)


def test_a_claim_without_lines_shows_how_far_each_comparison_is_from_failing() -> None:
    verdict = judged(
        lambda c: c.equal("equal", 1.0, 1.1, tolerance=0.5),
        lambda c: c.at_most("too large", 3.0, 2.0, role="beyond"),
        lambda c: c.at_least("large enough", 4.0, 2.0, role="corrected"),
        lambda c: c.within("half outside", [1.0, 3.0], 2.0, failure=0.1),
        lambda c: c.positive("one in four", [1, 2, 3, -1], allowed=0.5, role="contrast"),
    )
    dataset = claim.prepare(verdict)
    np.testing.assert_allclose(dataset["used"], [0.1 / 1.1 / 0.5, 1.5, 0.5, 5.0, 0.5], rtol=1e-8)
    assert [bool(one <= 1) for one in dataset["used"]] == [one.holds for one in verdict.measurements]
    assert list(dataset["words"].values) == [
        "off by 0.091, allowed 0.5",
        "3, at most 2",
        "4, at least 2",
        "outside: 0.5 of all, allowed 0.1",
        "wrong sign: 0.25 of all, allowed 0.5",
    ]
    figure = claim.draw(dataset)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert "found / allowed" in axes.get_xlabel()
    dots = {float(y): (float(x), one.get_color()) for one in axes.lines if one.get_marker() == "o"
            for x, y in zip(one.get_xdata(), one.get_ydata(), strict=True)}  # fmt: skip
    np.testing.assert_allclose([dots[4 - i][0] for i in range(5)], dataset["used"])
    assert [dots[4 - i][1] for i in range(5)] == [COLOURS[i] for i in (0, 1, 2, 0, 3)]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == set(ROLES.values())
    assert [1.0, 1.0] in [list(one.get_xdata()) for one in axes.lines]


def test_nothing_off_and_nothing_allowed_stand_at_the_ends() -> None:
    verdict = judged(
        lambda c: c.positive("none wrong", [1, 2]),
        lambda c: c.positive("half wrong, none allowed", [1, -2]),
        lambda c: c.equal("not a number", np.nan, 1.0, tolerance=0.1),
        lambda c: c.at_least("nothing where there must be something", 0.0, 1.0),
    )
    dataset = claim.prepare(verdict)
    assert list(dataset["used"].values[:2]) == [0, np.inf]
    (axes,) = claim.draw(dataset).axes
    ends = {one.get_marker(): list(one.get_ydata()) for one in axes.lines if len(one.get_xdata()) and one.get_color()
            == COLOURS[0]}  # fmt: skip
    assert (ends["<"], ends[">"]) == ([3], [2, 1, 0])
    assert axes.get_xlabel().endswith("; ◀ nothing is off; ▶ further than that")


def test_long_labels_are_not_cut_off() -> None:
    words = "a label that goes on and on about what was compared with what, and under which of the gradients"
    curve = Curve(np.array([1.0, 2.0]), {words: np.array([1.0, 2.0]), "b": np.array([1.0, 2.0])}, words, words)
    plain = judged(lambda c: c.equal(words, 1.0, 1.1, tolerance=0.5))
    for verdict in (plain, replace(plain, curve=curve)):
        figure = claim.draw(claim.prepare(verdict))
        figure.draw_without_rendering()
        (axes,) = figure.axes
        beside = [axes.yaxis.label] if verdict.curve is not None else [*axes.get_yticklabels(), *axes.texts]
        for text in (*beside, axes.xaxis.label, *figure.legends[0].get_texts()):
            box = text.get_window_extent()
            assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1, text
            assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1, text


def test_a_claim_that_does_not_apply_has_nothing_to_draw() -> None:
    verdicts = ss.verify("lemma_6", "theorem_4", classes=ss.syn_small())
    with pytest.raises(ss.InputError, match="nothing to draw: theorem_4 says nothing about these classes"):
        claim.prepare(verdicts[1])


def test_mathematics_is_readable() -> None:
    assert readable("eta_Y >> eta_Z, beta <= 1/sqrt(M) -> 0") == "η_Y ≫ η_Z, β ≤ 1/√(M) → 0"
    assert readable("betas and thetas stay words; |lambda_1|, xi_nl, Gamma") == (
        "betas and thetas stay words; |λ_1|, ξ_nl, Γ"
    )
