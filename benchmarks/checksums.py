"""What checksums and syncing cost: `python benchmarks/checksums.py`.

Each line compares this package with plain xarray, or with itself without syncing, by turns in one process.  Times are
medians over repetitions, of the processor except where waiting for the disk is measured.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import numpy as np
import xarray as xr

import scansnap as ss
from scansnap.storage import files
from scansnap.storage import folder as storage_folder
from scansnap.storage.folder import MANIFEST

REPETITIONS = 7


def results() -> dict[str, xr.Dataset]:
    """A small result, a large one of few files, and one of many files."""
    small = ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=50)
    numbers = np.random.default_rng(0)
    shape = {"run": 16, "step": 64, "token": 2**15}
    large = small.isel(run=0, step=slice(0, 1)).drop_vars(list(small.variables))
    large["values"] = (tuple(shape), numbers.normal(size=tuple(shape.values())))
    many = large.copy()
    many["values"] = (("run", "step"), numbers.normal(size=(2000, 64)))
    many["values"].encoding["chunks"] = (1, 64)
    described = '{"record": ["values"]}'
    return {
        "small": small,
        "256 MiB": large.assign_attrs(options=described),
        "2,000 files": many.assign_attrs(options=described),
    }


def times(first: Callable[[], object], second: Callable[[], object], clock: Callable[[], float]) -> tuple[float, float]:
    """The medians of two functions that are called by turns."""
    measured: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPETITIONS):
        for function, seconds in zip((first, second), measured, strict=True):
            began = clock()
            function()
            seconds.append(clock() - began)
    return statistics.median(measured[0]), statistics.median(measured[1])


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir="."))
    try:
        print(f"{'':34}{'with':>10}{'without':>10}{'ratio':>8}")
        for name, dataset in results().items():
            ours, plain = folder / "ours.zarr", folder / "plain.zarr"

            def save(dataset: xr.Dataset = dataset, path: Path = ours) -> None:
                ss.save(dataset, path, overwrite=True)

            def write(dataset: xr.Dataset = dataset, path: Path = plain) -> None:
                dataset.to_zarr(path, mode="w", zarr_format=3)

            report(f"save, {name}", *times(save, write, time.process_time))
            report(
                f"load, {name}",
                *times(
                    lambda path=ours: ss.load(path),  # type: ignore[misc]
                    lambda path=plain: xr.open_zarr(path, chunks=None).load(),  # type: ignore[misc]
                    time.process_time,
                ),
            )
            size = [sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) for path in (ours, plain)]
            listed = (ours / MANIFEST).stat().st_size
            print(f"  size {size[0]:,} bytes, of which the manifest takes {listed:,} ({listed / size[1]:.2%})")
        numbers = iter(range(100))

        def sweep() -> None:
            ss.sweep(
                "syn-small",
                lr_z=1.0,
                lr_y=1.0,
                seeds=range(10_000),
                steps=20,
                batch_size=16,
                progress=False,
                store=folder / f"{next(numbers)}.zarr",
            )

        def unsynced() -> None:
            with ExitStack() as stack:
                for module in (files, storage_folder):
                    stack.enter_context(mock.patch.object(module, "sync", return_value=None))
                sweep()

        report("sweep of 10,000 runs, processor", *times(sweep, unsynced, time.process_time))
        report("sweep of 10,000 runs, elapsed", *times(sweep, unsynced, time.perf_counter))
    finally:
        shutil.rmtree(folder)


def report(what: str, first: float, second: float) -> None:
    print(f"{what:34}{first:9.3f}s{second:9.3f}s{first / second:8.2f}", flush=True)


if __name__ == "__main__":
    main()
