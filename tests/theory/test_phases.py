"""Theorem 4's closed forms against quadrature, against the equations that they solve, and in each phase."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap import theory

pytestmark = pytest.mark.rounding

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


def test_late_times_are_as_printed_or_beyond_all_numbers() -> None:
    published = theory.late_time(**SETTING, lr_z=0.05, form="published")
    assert published == pytest.approx(np.exp(1 / np.sqrt(2 * 10)) / (1000 * 0.5), rel=1e-14)
    assert theory.late_time(**SETTING, lr_z=1e-6, constant=1e3) == np.inf
