"""The integral of the drive over times that do not start at zero."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.claims.population import integral as _integral


@pytest.mark.parametrize("first", [0.1, 1.0, 3.0])
def test_a_drive_in_proportion_to_time_has_the_integral_of_a_line(first: float) -> None:
    times = np.geomspace(first, 1e4 * first, 201)
    np.testing.assert_allclose(_integral(5 * times, times), 2.5 * times**2, rtol=1e-4)
