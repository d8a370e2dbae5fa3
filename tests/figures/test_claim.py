"""Pictures of claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scansnap as ss
from scansnap.base.formulas import readable
from scansnap.claims.check import ROLES, Check, Curve, Setting
from scansnap.claims.claim import Verdict
from scansnap.claims.gradients import lemma_3
from scansnap.figures import claim
from scansnap.figures.style import COLORS


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


def test_dots_are_not_joined() -> None:
    (verdict,) = ss.verify("lemma_13")
    dataset = claim.prepare(verdict)
    (axes,) = claim.draw(dataset).axes
    dots, bound = axes.lines
    assert (dots.get_linestyle(), dots.get_marker()) == ("None", "o")
    assert (bound.get_linestyle(), bound.get_marker()) == ("--", "None")
    np.testing.assert_array_equal(dots.get_xdata(), verdict.curve.x)


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
        lambda c: c.within("half outside", [1.0, 3.0], 2.0, failure=0.1),
        lambda c: c.positive("one in four", [1, 2, 3, -1], allowed=0.5, role="contrast"),
    )
    dataset = claim.prepare(verdict)
    np.testing.assert_allclose(dataset["used"], [0.1 / 1.1 / 0.5, 1.5, 0.5, 5.0, 0.5], rtol=1e-8)
    assert [bool(used <= 1) for used in dataset["used"]] == [measurement.holds for measurement in verdict.measurements]
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
    assert "deviation / allowed" in axes.get_xlabel()
    dots = {float(y): (float(x), line.get_color()) for line in axes.lines if line.get_marker() == "o"
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)}  # fmt: skip
    np.testing.assert_allclose([dots[4 - i][0] for i in range(5)], dataset["used"])
    assert [dots[4 - i][1] for i in range(5)] == [COLORS[i] for i in (0, 1, 2, 0, 3)]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == set(ROLES.values())
    assert [1.0, 1.0] in [list(line.get_xdata()) for line in axes.lines]


def test_ratios_off_the_scale_are_triangles_at_its_ends() -> None:
    verdict = judged(
        lambda c: c.positive("none wrong", [1, 2]),
        lambda c: c.positive("half wrong, none allowed", [1, -2]),
        lambda c: c.equal("not a number", np.nan, 1.0, tolerance=0.1),
        lambda c: c.at_least("nothing where there must be something", 0.0, 1.0),
    )
    dataset = claim.prepare(verdict)
    assert list(dataset["used"].values[:2]) == [0, np.inf]
    (axes,) = claim.draw(dataset).axes
    ends = {line.get_marker(): list(line.get_ydata()) for line in axes.lines
            if len(line.get_xdata()) and line.get_color() == COLORS[0]}  # fmt: skip
    assert (ends["<"], ends[">"]) == ([3], [2, 1, 0])
    assert axes.get_xlabel().endswith("; ◀ no deviation; ▶ off the scale")


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


def test_texts_are_shown_as_they_are() -> None:
    """Also with signs that matplotlib would take for broken mathematics."""
    words = "costs $5 < 6$ & \\frac{ or x^ $"
    curve = Curve(np.array([1.0, 2.0]), {words: np.array([1.0, 2.0]), "b": np.array([1.0, 2.0])}, words, words,
                  marks={words.replace(" ", ""): 1.5, "a_b_c": 1.2})  # fmt: skip
    plain = judged(lambda c: c.equal(words, 1.0, 1.1, tolerance=0.5))
    plain = replace(plain, claim=replace(lemma_3, statement=words))
    for verdict in (plain, replace(plain, curve=curve)):
        figure = claim.draw(claim.prepare(verdict))
        figure.draw_without_rendering()
        assert figure.axes[0].get_title() == readable(words)


def test_a_claim_that_does_not_apply_has_nothing_to_draw() -> None:
    verdicts = ss.verify("lemma_6", "theorem_4", classes=ss.syn_small())
    with pytest.raises(ss.InputError, match="nothing to draw: theorem_4 says nothing about these classes"):
        claim.prepare(verdicts[1])
