"""Does attention become sparse and then dense with other hidden units and output layers?

    python studies/joma_units.py [--seeds 10] [--rate 0.1]

For each setting, softmax attention, cross-entropy and contexts of concentration 0.3: flows to t = 10^6, and gradient
descent at --rate to t = 10^3.  A run becomes dense again if its entropy falls by at least 0.1 nat and a tenth of the
fall comes back.  ReLU units have no flow: the slope of a unit jumps where its input crosses zero, and inputs that are
pushed to zero from both sides stay there.
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
END_OF_DESCENT = 1000
SETTINGS: dict[str, dict[str, Any]] = {
    "GELU units": {},
    "ReLU units": {"activation": "relu"},
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


def count_dense(setting: dict[str, Any], ratio: float, seeds: int, rate: float | None) -> str:
    """How many runs become dense again, by gradient descent at a rate or by the flow (None)."""
    system = replace(ss.SYSTEMS.member("joma"), concentration=0.3, **setting)
    options: dict[str, Any] = {"seeds": range(seeds), "record": "entropy"}
    if rate is None and system.activation == "relu":
        return "-"
    if rate is None:
        run = ss.flow(system, lr_v=1.0, lr_z=ratio, times=[0, *TIMES], rtol=1e-5, atol=1e-7, **options)
    else:
        steps = round(END_OF_DESCENT / rate)
        options |= {"steps": steps, "record_every": steps // 200, "dtype": "float64"}
        run = ss.train(system, lr_v=rate, lr_z=rate * ratio, **options)
    return str(is_dense_again(run["entropy"].isel(query=0).values).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.1)
    given = parser.parse_args()
    seeds = given.seeds
    print(f"Runs of {seeds} that become dense again at ratio {' and '.join(f'{ratio:g}' for ratio in RATIOS)}")
    for name, setting in SETTINGS.items():
        flow, descent = ([count_dense(setting, r, seeds, rate) for r in RATIOS] for rate in (None, given.rate))
        print(f"{name}: flow {', '.join(flow)}; descent {', '.join(descent)}", flush=True)


if __name__ == "__main__":
    main()
