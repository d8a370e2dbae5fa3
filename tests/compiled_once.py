"""Where several workers run the tests, each kernel is compiled by one of them.

A kernel takes about twenty seconds to compile and is kept on disk, but Numba does not wait for another process that
compiles it too.  So the workers begin by compiling, each from another kernel on, and wait for one another at a lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from filelock import FileLock

import scansnap as ss

KERNELS: dict[str, Callable[[], object]] = {
    "training, single": lambda: ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=1),
    "training, double": lambda: ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=1, dtype="float64"),
    "switches, single": lambda: ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=1, heads=2),
    "switches, double": lambda: ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=1, heads=2, dtype="float64"),
    "flow": lambda: ss.flow("syn-small", lr_y=1.0, lr_z=1.0, times=[1.0]),
    "flow, switches": lambda: ss.flow("syn-small", lr_y=1.0, lr_z=1.0, times=[1.0], heads=2),
}


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile every kernel that is not on disk."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return
    names, folder = list(KERNELS), tmp_path_factory.getbasetemp().parent
    first = int(worker.removeprefix("gw")) * len(names) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for name in names[first:] + names[:first]:
        with FileLock(folder / f"{name}.lock"):
            KERNELS[name]()


if __name__ == "__main__":
    for compile_kernel in KERNELS.values():
        compile_kernel()
