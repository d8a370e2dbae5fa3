"""Lemmas 13 to 17 and Assumption 2: how much classes overlap."""

from __future__ import annotations

import numpy as np

from scansnap import theory
from scansnap.claims.claim import Check, Curve, Setting, assumed_setting, claim
from scansnap.claims.population import FloatArray
from scansnap.data.synthetic import syn_medium, syn_small


def _own(check: Check) -> list[FloatArray]:
    """E of the setting, if its classes overlap."""
    e = theory.overlaps(theory.directions(check.setting.probs))
    return [e] if np.abs(e).max() > 0 else []


def _random() -> list[FloatArray]:
    """E of 200 random sets of two to six classes."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        shape = (rng.integers(2, 7), 24)
        probs = rng.exponential(size=shape) * (rng.random(shape) < rng.uniform(0.02, 0.3))
        probs[np.arange(shape[0]), np.arange(shape[0])] += 1
        found.append(theory.overlaps(theory.directions(probs)))
    return [e for e in found if np.abs(e).max() > 0]


def _bounded(check: Check, name: str, label: str) -> None:
    """All matrices for which the lemma says something: the setting's, then the random ones."""
    for whose, matrices in (("the setting", _own(check)), ("200 random matrices", _random())):
        bounds = [theory.overlap_bounds(e) for e in matrices]
        pairs = [(getattr(b, name), getattr(b, name + "_most")) for b in bounds]
        finite = [pair for pair in pairs if np.isfinite(pair[1])]
        if finite:
            check.at_most(f"{label}, {whose}", *np.array(finite).T)


@claim("No overlap exceeds the largest eigenvalue: max |E_ij| <= |lambda_1|.", where="Lemma 13, Eq. 74")
def lemma_13(check: Check) -> None:
    """The setting's E and 200 random ones."""
    _bounded(check, "largest_overlap", "max |E_ij|")


@claim(
    "(I + E)^{-1} = I - E', and E' has the eigenvalues lambda/(1 + lambda).",
    where="Lemma 14, Eqs. 75 to 77",
    conditions="|lambda_1| < 1 for the series; I + E invertible is enough",
    wrong_factor=1 + 1e-6,
)
def lemma_14(check: Check) -> None:
    """Eigenvalues of E' = I - (I + E)^{-1}, computed without those of E."""
    predicted, measured = [], []
    for e in (*_own(check), *_random()):
        spectrum = theory.eigenvalues(e)
        predicted.append(np.sort(spectrum / (1 + spectrum)))
        measured.append(np.sort(np.linalg.eigvalsh(np.eye(len(e)) - np.linalg.inv(np.eye(len(e)) + e))))
    check.equal("eigenvalues of E'", np.concatenate(predicted), np.concatenate(measured), tolerance=1e-9)


@claim(
    "max |lambda_i(E')| <= |lambda_1| / (1 - |lambda_1|).",
    where="Lemma 15, Eq. 78",
    conditions="|lambda_1| < 1",
)
def lemma_15(check: Check) -> None:
    """The setting's E and 200 random ones."""
    _bounded(check, "largest_inverse", "max |lambda_i(E')|")


@claim(
    "The diagonal of E' is negative wherever a class overlaps another.",
    where="Lemma 16, Eq. 79",
    conditions="Assumption 2; I + E positive definite is enough",
)
def lemma_16(check: Check) -> None:
    """The setting's E and 200 random ones, classes that overlap with another."""
    found = [-np.diag(theory.inverse_overlaps(e))[e.max(axis=1) > 1e-9] for e in (*_own(check), *_random())]
    check.positive("-E'_nn", np.concatenate(found))


@claim(
    "|E'_nn' - E_nn'| <= lambda_1^2 / (1 - |lambda_1|).",
    where="Lemma 17, Eq. 80",
    conditions="|lambda_1| < 1",
    wrong_factor=1.5,
)
def lemma_17(check: Check) -> None:
    """The setting's E and 200 random ones."""
    _bounded(check, "largest_difference", "max |E'_ij - E_ij|")


@claim(
    "Weak correlations: |lambda_1| < 1/K and |lambda_i| >= 6/sqrt(M), in the paper's own experiments.",
    where="Assumption 2, with Section 8",
    setting=lambda: Setting(syn_small(), lr_y=1.0, lr_z=1.0),
    wrong_factor=1.2,
    correction="the published settings break it; K symmetric classes can meet it only if M > 36 K^2 (K-1)^2",
)
def assumption_2(check: Check) -> None:
    """The overlaps of Syn-Small and of the four Syn-Medium settings; and of three classes that do meet it."""
    settings = {"the setting": check.setting.classes}
    if check.setting.classes == syn_small():
        settings |= {f"Syn-Medium, {q} queries": syn_medium(num_query=q) for q in (1, 3, 5, 10)}
    tops, limits = [], []
    for name, classes in settings.items():
        found = theory.assumptions(classes, lr_y=1.0, lr_z=1.0)
        check.at_most(f"|lambda_1|, {name}", found["weak_overlap"].value, found["weak_overlap"].limit)
        low = found["no_vanishing_overlap"]
        check.at_least(f"min |lambda_i|, {name}", low.value, low.limit)
        tops.append(found["weak_overlap"].value)
        limits.append(found["weak_overlap"].limit)
    good = theory.assumptions(assumed_setting().classes, lr_y=0.5, lr_z=0.0005)
    check.at_most("|lambda_1|, three classes with M = 1600", good["weak_overlap"].value, good["weak_overlap"].limit,
                  role="corrected")  # fmt: skip
    low = good["no_vanishing_overlap"]
    check.at_least("min |lambda_i|, three classes with M = 1600", low.value, low.limit, role="corrected")
    if len(tops) > 1:
        check.curve = Curve(np.array([2.0, 6.0, 10.0, 20.0]), {
            "|lambda_1|": np.array(tops[1:]), "limit, 1/K": np.array(limits[1:]),
        }, "K of Syn-Medium", "largest eigenvalue of E", log_x=False, log_y=True)  # fmt: skip


@claim(
    "sum_k lambda_k^2 u_nk^2/(1 + lambda_k) >= min |lambda_i|^2/(1 - |lambda_1|), on the way to xi_n > 0.",
    where="Theorem 1 (a), Eq. 93, third line",
    conditions="Assumption 2",
    wrong_factor=1.1,
    correction="the denominator is 1 + |lambda_1|; the next line, with 1/2, follows all the same",
)
def equation_93(check: Check) -> None:
    """-E'_nn, which is that sum (Eq. 79), against both bounds, for all E with |lambda_1| < 1/K."""
    weak = []
    for e in (*_own(check), *_random()):
        spectrum = np.abs(theory.eigenvalues(e))
        if spectrum[0] < 1 / len(e) and spectrum[-1] > 1e-6:  # Assumption 2 has no vanishing eigenvalues
            weak.append(e)
    least = [-np.diag(theory.inverse_overlaps(e)).max() for e in weak]
    for form, role in (("published", "assumed"), ("exact", "corrected")):
        bounds = [theory.diagonal_bound(e, form=form) for e in weak]
        check.at_least(f"-E'_nn, {form} bound, {len(weak)} matrices", least, bounds, role=role)
