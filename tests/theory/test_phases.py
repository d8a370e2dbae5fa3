"""Theorem 4's closed forms against quadrature, against the equations that they solve, and in each phase."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap import theory

SETTING = {"vocab_size": 1000, "num_classes": 10, "lr_y": 0.5}


def test_forms_of_b_n_differ_by_a_constant_and_a_factor() -> None:
    """That the exact one solves its equation, tests/theory/test_laws.py shows."""
    times, more = np.array([10.0, 100.0, 1000.0, 10_000.0]), {**SETTING, "lr_z": 0.05, "constant": 1.3}
    exact, published, poster = (
        theory.growth_bound(times, **more, form=form) for form in ("exact", "published", "poster")
    )
    np.testing.assert_allclose(theory.common_logit(times, **more), -exact)
    np.testing.assert_allclose(published - exact, np.log(1.3) / 4)  # the lost constant
    np.testing.assert_allclose(poster, 4 * published)


@pytest.mark.parametrize("form", ["exact", "published"])
@pytest.mark.parametrize("constant", [0.05, 7.0])
def test_the_late_bound_is_the_limit_of_the_bound(form: str, constant: float) -> None:
    """At t = 1e250, where what the expansion leaves out is 1/4 ln(1 + C_0/(4 Gamma)), below 1e-5."""
    more = {"lr_z": 0.05, "constant": constant, "form": form}
    late = theory.growth_bound_late(1e250, **SETTING, **more)
    assert late == pytest.approx(theory.growth_bound(1e250, **SETTING, **more), abs=1e-5)
    assert late == pytest.approx(theory.growth_bound_phases(1e250, **SETTING, **more), abs=1e-5)


def test_late_times_are_when_gamma_outgrows_the_constant() -> None:
    """At t = K/(M eta_Y) exp(sqrt(nu C_0/(2 K))) 4 Gamma, by its leading order 2 K/nu ln(M eta_Y t/K)^2, is C_0."""
    for constant in (0.7, 20.0):
        t = theory.late_time(**SETTING, lr_z=0.05, constant=constant)
        log_time = np.log(1000 * 0.5 * t / 10)
        assert 2 * 10 / (0.5 / 0.05) * log_time**2 == pytest.approx(constant, rel=1e-12)
    published = theory.late_time(**SETTING, lr_z=0.05, form="published")
    assert published == pytest.approx(np.exp(1 / np.sqrt(2 * 10)) / (1000 * 0.5), rel=1e-14)
    assert theory.late_time(**SETTING, lr_z=1e-6, constant=1e3) == np.inf


def test_phases_begin_and_end_where_they_are_said_to() -> None:
    """Eq. 14 with h = eta_Y t/(M K) up to t'_0 and ln(M eta_Y t/K)/M from t_0 on, and nothing in between."""
    more = {"lr_z": 0.05, "constant": 2.0}
    first, second = theory.scan_end(**SETTING), theory.snap_start(**SETTING)
    omega_1 = theory.growth_crossings(vocab_size=1000).omega_1
    assert second / first == pytest.approx(2 * (1 + omega_1), rel=1e-14)
    t = np.array([0.0, first / 3, first * (1 - 1e-12), first * (1 + 1e-12), second * (1 - 1e-12), second * 3])
    bound = theory.growth_bound_phases(t, **SETTING, **more)
    assert np.isnan(bound).tolist() == [False, False, False, True, True, False]
    h = np.array([0, 0.5 * t[1] / 10_000, 0.5 * t[2] / 10_000, np.nan, np.nan, np.log(1000 * 0.5 * t[5] / 10) / 1000])
    accumulated = 0.05 / 0.5 * 10 * 999**2 * h**2 / 2
    np.testing.assert_allclose(bound, np.log(1 + 4 * accumulated / 2) / 4, rtol=1e-12)
    alone = {**SETTING, "num_classes": 1}
    assert np.isfinite(theory.growth_bound_phases(theory.snap_start(**alone), **alone, **more))  # t_0 belongs to it
    assert np.isnan(theory.growth_bound_late(10 / (1000 * 0.5), **SETTING, **more))  # ln(M eta_Y t/K) = 0
    assert np.isfinite(theory.growth_bound_late(1.1 * 10 / (1000 * 0.5), **SETTING, **more))


def test_phase_constant() -> None:
    assert theory.phase_constant(0.5, num_classes=10) == pytest.approx(1 / (9 * 0.25))
    assert theory.phase_constant(0.5, num_classes=10, form="published") == pytest.approx(1 / (10 * 0.25))
    e = np.full((4, 4), 0.3) - 0.3 * np.eye(4)
    f = np.linalg.cholesky(e + np.eye(4))  # rows with these overlaps
    beta = theory.backpropagated_gradient(theory.overlaps(f), vocab_size=10**9).beta
    drive = theory.drive(theory.overlaps(f), beta, speed=1.0)
    assert theory.phase_constant(0.3, num_classes=4, form="initial") == pytest.approx(1 / (drive[0] * 0.7), rel=1e-6)
