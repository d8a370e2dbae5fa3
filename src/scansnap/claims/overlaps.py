"""Lemmas 13 to 17 and Assumption 2: how much classes overlap."""

from __future__ import annotations

from typing import Final

import numpy as np

from scansnap import theory
from scansnap.claims.check import FORM_ROLES, Check, Setting, assumed_setting
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray
from scansnap.data.synthetic import syn_medium, syn_small

MATRICES: Final = "the classes and random matrices"


def _matrices(check: Check) -> list[FloatArray]:
    """E of the setting's classes and of 200 random sets of two to six classes, where classes overlap."""
    rng = check.rng()
    drawn = [theory.overlaps(theory.directions(check.setting.probs))]
    for _ in range(200):
        shape = (rng.integers(2, 7), 24)
        probs = rng.exponential(size=shape) * (rng.random(shape) < rng.uniform(0.02, 0.3))
        probs[np.arange(shape[0]), np.arange(shape[0])] += 1
        drawn.append(theory.overlaps(theory.directions(probs)))
    return [e for e in drawn if np.abs(e).max() > 0]


def _bounded(check: Check, name: str, label: str) -> None:
    """Compare a quantity with its bound for all matrices about which the lemma says something."""
    bounds = [theory.overlap_bounds(e) for e in _matrices(check)]
    finite = [b for b in bounds if np.isfinite(getattr(b, name + "_most"))]
    values, limits = ([getattr(b, name + end) for b in finite] for end in ("", "_most"))
    check.at_most(label, values, limits)


@claim(where="Lemma 13, Eq. 74", category="holds", depends_on=MATRICES)
def lemma_13(check: Check) -> None:
    r"""No overlap exceeds the largest eigenvalue: $\max \lvert E_{ij}\rvert \le \lvert \lambda_1\rvert$.

    Check: The setting's E and 200 random ones.
    """
    _bounded(check, "largest_overlap", "max |E_ij|")


@claim(where="Lemma 14, Eqs. 75 to 77", category="holds", wrong_factor=1 + 1e-6, depends_on=MATRICES)
def lemma_14(check: Check) -> None:
    r"""$(I + E)^{-1} = I - E'$, and $E'$ has the eigenvalues $\lambda/(1 + \lambda)$.

    Conditions: $\lvert \lambda_1\rvert < 1$ for the series; $I + E$ invertible is enough

    Check: Eigenvalues of E' = I - (I + E)^{-1}, computed without those of E.
    """
    matrices = _matrices(check)
    x = np.concatenate([np.sort(theory.eigenvalues(e)) for e in matrices])
    inverse = [np.linalg.eigvalsh(np.eye(len(e)) - np.linalg.inv(np.eye(len(e)) + e)) for e in matrices]
    measured = np.concatenate(inverse)  # lambda/(1 + lambda) keeps the order
    check.equal("eigenvalues of E'", x / (1 + x), measured, tolerance=1e-9)


@claim(where="Lemma 15, Eq. 78", category="holds", depends_on=MATRICES)
def lemma_15(check: Check) -> None:
    r"""$\max \lvert \lambda_i(E')\rvert \le \lvert \lambda_1\rvert / (1 - \lvert \lambda_1\rvert)$.

    Conditions: $\lvert \lambda_1\rvert < 1$

    Check: The setting's E and 200 random ones.
    """
    _bounded(check, "largest_inverse", "max |lambda_i(E')|")


@claim(where="Lemma 16, Eq. 79", category="holds", depends_on=MATRICES)
def lemma_16(check: Check) -> None:
    """The diagonal of $E'$ is negative wherever a class overlaps another.

    Conditions: Assumption 2; $I + E$ positive definite is enough

    Check: The setting's E and 200 random ones, classes that overlap with another.
    """
    matrices = _matrices(check)
    overlap = np.concatenate([e.max(axis=1) for e in matrices])
    diagonal = -np.concatenate([np.diag(theory.inverse_overlaps(e)) for e in matrices])
    check.positive("-E'_nn", diagonal[overlap > 1e-9])


@claim(where="Lemma 17, Eq. 80", category="holds", wrong_factor=1.5, depends_on=MATRICES)
def lemma_17(check: Check) -> None:
    r"""$\lvert E'_{nn'} - E_{nn'}\rvert \le \lambda_1^2 / (1 - \lvert \lambda_1\rvert)$.

    Conditions: $\lvert \lambda_1\rvert < 1$

    Check: The setting's E and 200 random ones.
    """
    _bounded(check, "largest_difference", "max |E'_ij - E_ij|")


@claim(where="Assumption 2, with Section 8", setting=lambda: Setting(syn_small(), lr_y=1.0, lr_z=1.0), wrong_factor=5.0)
def assumption_2(check: Check) -> None:
    r"""Assumption 2, $6/\sqrt{M} \le \lvert \lambda_i\rvert < 1/K$, needs $M > 36 K^2$; no published synthetic setting
    has so many tokens.

    Check: 36 K^2 against M, and the overlaps, of Syn-Small, of four Syn-Medium settings and of classes that meet it.

    The settings are what they are: M is at most 24% of 36 K^2 in the published ones, and five times it in the other.
    """
    settings = {"the setting": check.setting.classes}
    published = check.setting.classes == syn_small()
    if published:
        settings |= {f"Syn-Medium, {q} queries": syn_medium(num_query=q) for q in (1, 3, 5, 10)}
    share = [classes.vocab_size / (36.0 * classes.num_classes**2) for classes in settings.values()]
    # a user's classes may have more tokens
    check.at_most("M over 36 K^2, published settings", share, 1.0, role="assumed" if published else "contrast")
    good = assumed_setting().classes
    check.at_most("36 K^2 against M, three classes with M = 1600", 36.0 * good.num_classes**2, good.vocab_size)
    for name, classes in {**settings, "three classes with M = 1600": good}.items():
        assumed = theory.assumptions(classes, lr_y=0.5, lr_z=0.0005)
        high, low = assumed["weak_overlap"], assumed["no_vanishing_overlap"]
        check.at_most(f"|lambda_1| against 1/K, {name}", high.value, high.limit, role="contrast")
        check.at_least(f"min |lambda_i| against 6/sqrt(M), {name}", low.value, low.limit, role="contrast")


@claim(where="Theorem 1 (a), Eq. 93, third line", category="misprint", wrong_factor=1.1, depends_on=MATRICES)
def equation_93(check: Check) -> None:
    r"""$\sum_k \lambda_k^2 u_{nk}^2/(1 + \lambda_k) \ge \min \lvert \lambda_i\rvert^2/(1 - \lvert \lambda_1\rvert)$, on
    the way to $\xi_n > 0$.

    Conditions: Assumption 2

    Correction: the denominator is $1 + \lvert \lambda_1\rvert$; the printed bound is up to 1.5 times too large, the
    supremum being at $K = 2$ as the overlap tends to 1/2; the next line, with 1/2, follows all the same

    Check: -E'_nn, which is that sum (Eq. 79), against both bounds, for all E with |lambda_1| < 1/K.
    """
    spectra = [(e, np.abs(theory.eigenvalues(e))) for e in _matrices(check)]
    # Assumption 2 excludes vanishing eigenvalues
    weak = [e for e, size in spectra if size[0] < 1 / len(e) and size[-1] > 1e-6]
    least = np.array([-np.diag(theory.inverse_overlaps(e)).max() for e in weak])
    for form, role in FORM_ROLES:
        bounds = [theory.diagonal_bound(e, form=form) for e in weak]
        check.at_least(f"-E'_nn, {form} bound, the {len(weak)} matrices that are weak enough", least, bounds, role=role)
