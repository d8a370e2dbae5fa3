"""Pictures of claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from scansnap.claims.check import ROLES, Check, Curve, Setting
from scansnap.claims.claim import Verdict
from scansnap.claims.gradients import lemma_3
from scansnap.figures import claim
from scansnap.figures.style import COLORS, mathtext
from scansnap.runtime.formulas import readable
from tests.figures.conftest import check_picture


def test_a_picture_shows_every_line_and_mark() -> None:
    (verdict,) = ss.verify("lemma_9")
    figure = claim.draw(verdict)
    axes, below = figure.axes
    assert len(axes.lines) == 3 + 2  # two marks
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), verdict.curve.lines["Eq. 85"])
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_ylabel() == "speed γ"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(verdict.curve.lines)
    formula, *measured = verdict.curve.lines.values()
    for line, values in zip(below.lines, measured, strict=True):  # all lie upon the formula, and differ by this
        gap = np.abs(values - formula) / np.maximum(values, formula)
        np.testing.assert_allclose(line.get_ydata(), np.where(gap > 0, gap, np.nan), rtol=1e-6)
    assert [line.get_color() for line in below.lines] == [line.get_color() for line in axes.lines[1:3]]


def test_only_lines_that_cannot_be_told_apart_have_a_difference() -> None:
    x = np.linspace(1, 10, 20)
    near, far = x * (1 + 1e-5), x + 1
    lines = {"a": x, "near": near, "far": far, "hole": np.where(x > 5, near, np.nan)}
    below = claim.draw(replace(judged(), curve=Curve(x, lines, "x", "y", log_x=False))).axes[1]
    assert [line.get_color() for line in below.lines] == [COLORS[1], COLORS[3]]
    low, high = below.get_ylim()
    assert high / low >= 10  # a nearly constant difference is not a cliff
    assert len(claim.draw(replace(judged(), curve=Curve(x, {"a": x, "far": far}, "x", "y"))).axes) == 1
    same = claim.draw(replace(judged(), curve=Curve(x, {"a": x, "b": x}, "x", "y")))
    assert [text.get_text() for text in same.axes[1].texts] == ["no difference"]


def judged(*measure) -> Verdict:
    """A verdict of lemma_3 with other measurements and no curve."""
    check = Check(Setting(ss.syn_small()))
    for compare in measure:
        compare(check)
    return Verdict(lemma_3, check.setting, tuple(check.measurements), None)


def test_a_claim_without_lines_shows_how_far_each_comparison_is_from_failing() -> None:
    verdict = judged(
        lambda c: c.equal("equal", 1.0, 1.1, tolerance=0.5),
        lambda c: c.at_most("too large", 3.0, 2.0, role="beyond"),
        lambda c: c.at_least("large enough", 4.0, 2.0, role="corrected"),
        lambda c: c.positive("one in four", [1, 2, 3, -1], allowed=0.5, role="contrast"),
    )
    used = [0.1 / 1.1 / 0.5, 1.5, 0.5, 0.5]
    assert [share <= 1 for share in used] == [measurement.holds for measurement in verdict.measurements]
    figure = claim.draw(verdict)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == [
        "off by 0.091\nallowed 0.5",
        "3\nat most 2",
        "4\nat least 2",
        "wrong sign: 0.25 of all\nallowed 0.5",
    ]
    assert axes.get_xscale() == "log"
    assert "deviation / allowed" in axes.get_xlabel()
    dots = {
        float(y): (float(x), line.get_color())
        for line in axes.lines
        if line.get_marker() == "o"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    np.testing.assert_allclose([dots[3 - i][0] for i in range(4)], used, rtol=1e-8)
    assert [dots[3 - i][1] for i in range(4)] == [COLORS[i] for i in (0, 1, 2, 3)]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == set(ROLES.values())
    assert [1.0, 1.0] in [list(line.get_xdata()) for line in axes.lines]


def test_ratios_off_the_scale_are_at_its_ends() -> None:
    verdict = judged(
        lambda c: c.positive("none wrong", [1, 2]),
        lambda c: c.positive("half wrong, none allowed", [1, -2]),
        lambda c: c.equal("not a number", np.nan, 1.0, tolerance=0.1),
        lambda c: c.at_least("nothing where there must be something", 0.0, 1.0),
    )
    (axes,) = claim.draw(verdict).axes
    low, high = axes.get_xlim()
    assert axes.lines[0].get_xdata().tolist() == [low, high, high, high]


def test_texts_are_shown_as_they_are_and_not_cut_off() -> None:
    """Also long ones, and those with signs that matplotlib would take for broken mathematics."""
    long = "a label that goes on and on about what was compared with what, and under which of the gradients"
    for words in (long, "$5 < 6 $ & \\frac{ or x^ $"):
        line = np.array([1.0, 2.0])
        curve = Curve(line, {words: line, "b": line}, words, words, marks={words[:9].replace(" ", ""): 1.5})
        plain = judged(lambda c, words=words: c.equal(words, 1.0, 1.1, tolerance=0.5))
        plain = replace(plain, claim=replace(lemma_3, statement=words))
        for verdict in (plain, replace(plain, curve=curve)):
            figure = claim.draw(verdict)
            check_picture(figure)
            shown = figure.axes[0].get_title().replace(r"\$", "$").replace("\n", " ")
            assert shown == readable(words).strip()


def test_a_claim_that_does_not_apply_has_nothing_to_draw() -> None:
    verdicts = ss.verify("lemma_6", "theorem_4", classes=ss.syn_small())
    with pytest.raises(ss.InputError, match="nothing to draw: theorem_4 says nothing about these classes"):
        claim.draw(verdicts[1])


def test_subscripts_and_powers_are_set() -> None:
    assert mathtext("t'_0 and beta_nn', x_{T-1}: sum_k") == "$t'_{0}$ and $β_{nn'}$, $x_{T-1}$: $Σ_{k}$"
    assert mathtext("(I + E)^{-1}, M^2, T^(-1/2)") == "(I + E)$^{-1}$, $M^{2}$, $T^{-1/2}$"
    assert mathtext("|Y_l|^2/2, e^entropy, M^-(2 - w_0)") == "|$Y_{l}$|$^{2}$/2, e^entropy, $M^{-(2 - w_0)}$"
    assert mathtext("e^(M h*)") == r"$e^{M\ h*}$"
    assert mathtext(r"$\eta_Y \gg \eta_Z$") == "$η_{Y}$ ≫ $η_{Z}$"
    assert mathtext("my_name costs $5") == r"my_name costs \$5"
