"""Laws of JoMA (Tian et al., ICLR 2024): hidden weights v and attention e^z with z = v²/2, in closed form or as one
equation for each component.

Linear units, constant gradient.  dv_l/dt = Δ_l e^{v_l²/2} from v = 0.  ∫ e^{-v²/2} dv = √(π/2) erf(v/√2), so that
√(π/2) erf(v_l/√2) = Δ_l t: erf(v_l/√2)/Δ_l is equal for all l, and the component with the largest |Δ| becomes infinite
at t = √(π/2)/max|Δ|, when every other one is finite.

Homogeneous units.  The paper's law is dv_l/dt = (μ_l − v_l) e^{v_l²/2}.  With δ = 1 − v/μ and s = ln(1/δ) this is
ds/dt = e^{μ²(1 − e^{−s})²/2}, which tends to e^{μ²/2}.  So ln(1/δ_j)/ln(1/δ_k) tends to e^{(μ_j² − μ_k²)/2}.

Squared errors.  The law replaces E[g h' x_l] by μ_l − v_l.  With contexts of one token each, a linear unit and squared
errors, the joint gradient flow is exactly dv_l/dt = e^{z_l}(μ_l − v_l e^{z_l}), z_l = v_l²/2: the unit fits v e^z, not
v, to μ.  It converges to v_l² = W(μ_l²) (Lambert's function) at the rate (1 + v_l²) e^{v_l²}, which grows with μ_l too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp
from scipy.special import erfinv, lambertw

from scansnap.validation.validate import formula

FloatArray = NDArray[np.float64]


@formula
def linear_law(drive: ArrayLike, time: ArrayLike) -> FloatArray:
    """v(t) of linear units under a constant gradient Δ (`drive`), from v = 0; NaN after it became infinite.

    >>> from scansnap.papers.joma.theory import linear_law
    >>> round(float(linear_law(1.0, 1.0)), 4)
    1.2755
    """
    share = np.sqrt(2 / np.pi) * np.asarray(drive, float) * np.asarray(time, float)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.sqrt(2) * erfinv(np.where(np.abs(share) < 1, share, np.nan)))


@formula
def blow_up_time(drive: ArrayLike) -> float:
    """√(π/2)/max|Δ|: when the first component of `linear_law` becomes infinite."""
    return float(np.sqrt(np.pi / 2) / np.abs(np.asarray(drive, float)).max())


@formula
def homogeneous_law(target: ArrayLike, times: ArrayLike) -> FloatArray:
    """ln(1/δ) (time, component) of the law of homogeneous units with targets μ, from v = 0; v = μ(1 − δ)."""
    mu, times = np.asarray(target, float), np.asarray(times, float)

    def slope(_: float, s: FloatArray) -> FloatArray:
        return np.asarray(np.exp((mu * np.expm1(-s)) ** 2 / 2))

    solved = solve_ivp(slope, (0.0, times[-1]), np.zeros(mu.size), "DOP853", times, rtol=1e-11, atol=1e-12)
    return np.asarray(solved.y.T)


@formula
def homogeneous_rate(target: ArrayLike) -> FloatArray:
    """e^{μ²/2}, at which ln(1/δ) grows in the end under the law of homogeneous units."""
    return np.asarray(np.exp(np.asarray(target, float) ** 2 / 2))


@formula
def squared_limit(target: ArrayLike) -> FloatArray:
    """√W(μ²), to which v tends with squared errors: the solution of v e^{v²/2} = μ > 0."""
    return np.asarray(np.sqrt(lambertw(np.asarray(target, float) ** 2).real))


@formula
def squared_rate(target: ArrayLike) -> FloatArray:
    """(1 + v²) e^{v²} at v = `squared_limit`, at which ln(1/δ) grows in the end with squared errors."""
    squared = squared_limit(target) ** 2
    return np.asarray((1 + squared) * np.exp(squared))
