"""Population loss and plateaus of linear attention on random regression tasks.

x ~ N(0, Λ), a task w ~ N(0, I), y = w.x.  A context of N pairs gives b = (1/N) sum y x, and heads answer the query x_q
by b'W x_q with W = sum_h v_h U_h.  E[bb'] = A = Λ² (1 + 1/N) + Λ tr Λ / N and E[bw'] = Λ.  So

    loss = tr Λ / 2 - tr(Λ² W') + tr(A W Λ W') / 2,    G = -dloss/dW = Λ² - A W Λ.

For Λ = diag λ it is least at W = diag(λ/a), where mode d adds λ_d (1 - λ_d²/a_d) / 2; at W_dd = 0 it adds λ_d / 2.
"""

import numpy as np


def moment(covariance, pairs: int):
    """A (..., mode, mode) for a diagonal Λ."""
    return covariance @ covariance * (1 + 1 / pairs) + covariance * covariance.sum((-2, -1))[..., None, None] / pairs


def plateaus(covariance: np.ndarray, pairs: int) -> np.ndarray:
    """The loss when the first m modes are learned, for m from none to all."""
    size, a = np.diagonal(covariance), np.diagonal(moment(covariance, pairs))
    return size.sum() / 2 - np.append(0.0, np.cumsum(size**3 / a)) / 2
