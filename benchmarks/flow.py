"""The flow to 10^12 steps, against an explicit method; and a phase diagram of 1,000 runs.

    python benchmarks/flow.py [--pairs 3] [--points 32]

The explicit method is scipy's DOP853 with the gradient of `dynamics/gradients.py`, at the same tolerances.  Both are
timed in turn in one process, as processor time after a first call.  Errors are the largest in attention logits at 97
times, against the collocation at tolerances a thousand times smaller.  The explicit method gives up after 100,000
evaluations.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

import scansnap as ss
from scansnap.data.named_classes import as_source
from scansnap.dynamics.gradients import LayoutTensors, gradients, population_batch
from scansnap.dynamics.yz_tasks import YZFlow
from scansnap.runtime.machine import one_thread

TIMES = np.geomspace(1, 1e12, 97)
MOST_EVALUATIONS = 100_000
SETTINGS = (
    ("single-common", 0.5, 0.05),
    ("single-common", 0.5, 5.0),
    ("syn-medium-3", 2.0, 1.0),
    ("syn-medium-3", 1.0, 10.0),
    ("syn-medium-3", 1.0, 100.0),
    ("syn-medium-3", 1e-3, 10.0),
    ("syn-medium-3", 1.0, 1e6),
    ("syn-medium-3", 1e-6, 1e6),
    ("syn-medium-3", 1e6, 1e-6),
)

Array = NDArray[np.float64]


class _TooHardError(Exception):
    """The explicit method makes no progress."""


def explicit(name: str, lr_y: float, lr_z: float) -> Array | None:
    """z at the times (n, Q, S), or None if it gives up."""
    options = ss.FlowOptions(lr_y=lr_y, lr_z=lr_z, times=TIMES)
    start = YZFlow.checked(as_source(name), options).start(options.runs)
    layout = LayoutTensors.of(start.layout, dtype=torch.float64)
    batch = population_batch(layout, 1)
    entries, scale = start.decoder[0].size, 1 / max(lr_y, lr_z)
    evaluations = 0

    def slope(u: float, state: Array) -> Array:
        nonlocal evaluations
        evaluations += 1
        if evaluations > MOST_EVALUATIONS:
            raise _TooHardError
        y = torch.from_numpy(state[:entries]).reshape(start.decoder.shape)
        z = torch.from_numpy(state[entries:]).reshape(start.attention_logits.shape)
        gradient = gradients(layout, y, z, batch)
        dy, dz = lr_y * layout.entry_rate * gradient.decoder, lr_z * gradient.attention_logits
        return scale * np.exp(u) * np.concatenate([dy.numpy().ravel(), dz.numpy().ravel()])

    times = np.log1p(TIMES / scale)
    beginning = np.concatenate([start.decoder.ravel(), start.attention_logits.ravel()])
    with one_thread(), contextlib.suppress(_TooHardError):
        states = solve_ivp(slope, (0, times[-1]), beginning, "DOP853", times, rtol=1e-8, atol=1e-10).y.T
        return states[:, entries:].reshape(len(TIMES), *start.attention_logits.shape[1:])
    return None


def collocation(name: str, lr_y: float, lr_z: float, rtol: float = 1e-8) -> Array:
    """The same by `flow`."""
    run = ss.flow(name, lr_y=lr_y, lr_z=lr_z, times=TIMES, record="attention_logits", rtol=rtol, atol=rtol / 100)
    logits: Array = run["attention_logits"].values[0, :, 0, 0]
    return logits


def timed(call: Callable[[], Array | None]) -> tuple[float, Array | None]:
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def compare_methods(pairs: int) -> None:
    """`flow` and the explicit method."""
    collocation("syn-small", 1.0, 1.0)
    print(f"{'setting':>14} {'lr_y':>6} {'lr_z':>6} {'explicit':>10} {'flow':>8} {'ratio':>7} {'errors':>17}")
    for name, lr_y, lr_z in SETTINGS:
        spent = []
        for _ in range(pairs):
            old, by_explicit = timed(lambda: explicit(name, lr_y, lr_z))  # noqa: B023
            new, by_flow = timed(lambda: collocation(name, lr_y, lr_z))  # noqa: B023
            spent.append((old, new))
            if by_explicit is None:
                break
        exact = collocation(name, lr_y, lr_z, rtol=1e-11)
        old, new = np.median(spent, axis=0)
        assert by_flow is not None
        errors = [None if logits is None else np.abs(logits - exact).max() for logits in (by_explicit, by_flow)]
        words = " ".join("gives up" if error is None else f"{error:8.1e}" for error in errors)
        print(
            f"{name:>14} {lr_y:6g} {lr_z:6g} {old:8.2f} s {1e3 * new:5.0f} ms {old / new:7.0f} {words:>17}", flush=True
        )


def diagram(points: int, name: str = "single-common") -> xr.Dataset:
    """Flows at all pairs of rates from 0.01 to 100."""
    rates = np.geomspace(1e-2, 1e2, points)
    lr_y, lr_z = (axis.ravel() for axis in np.meshgrid(rates, rates))
    return ss.flow(name, lr_y=lr_y, lr_z=lr_z, times=TIMES, record=("loss", "entropy"))


def print_diagram(points: int, name: str = "single-common") -> None:
    began, cpu = time.perf_counter(), time.process_time()
    runs = diagram(points, name)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    done = int((runs["status"] == "ok").sum())
    print(
        f"{done} of {points**2} runs of {name}, rates from 0.01 to 100: {wall:.2f} s, {cpu:.2f} s of processor time",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--points", type=int, default=32, help="rates along each axis of the phase diagram")
    arguments = parser.parse_args()
    compare_methods(arguments.pairs)
    print_diagram(arguments.points)


if __name__ == "__main__":
    main()
