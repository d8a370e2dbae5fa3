"""Does attention become sparse and then dense with other hidden units and output layers?

    python studies/joma_units.py [--seeds 10]

For each setting, flows of softmax attention and cross-entropy to t = 10^6, with contexts of concentration 0.3.  A run
becomes dense again if its entropy falls by at least 0.1 nat and a tenth of the fall comes back.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scansnap as ss

TIMES = np.geomspace(1, 1e6, 49)
RATIOS = (1.0, 100.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "GELU units": {},
    "linear units": {"activation": "linear"},
    "tanh units": {"activation": "tanh"},
    "square units": {"activation": "square"},
    "identity output": {"output": "identity"},
}


def is_dense_again(entropy: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each curve (..., time) falls by 0.1 nat or more, and comes back by a tenth of the fall or more."""
    lowest = entropy.min(-1)
    fall, back = entropy[..., 0] - lowest, entropy[..., -1] - lowest
    return np.asarray((fall >= 0.1) & (back >= 0.1 * fall))


def count_dense(setting: dict[str, Any], ratio: float, seeds: int) -> int:
    """How many runs become dense again."""
    system = replace(ss.SYSTEMS.member("joma"), concentration=0.3, **setting)
    run = ss.flow(
        system, lr_v=1.0, lr_z=ratio, seeds=range(seeds), times=[0, *TIMES], record="entropy", rtol=1e-5, atol=1e-7
    )
    return int(is_dense_again(run["entropy"].isel(query=0).values).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    for name, setting in SETTINGS.items():
        counts = ", ".join(f"{count_dense(setting, ratio, seeds)} at ratio {ratio:g}" for ratio in RATIOS)
        print(f"{name}: of {seeds} runs {counts}", flush=True)


if __name__ == "__main__":
    main()
