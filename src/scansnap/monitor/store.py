"""Snapshots on disk: a zarr store that grows while training goes on.

An append through zarr takes 40 ms of processor time, whether it adds one snapshot or many.  So a snapshot is first
written to a file of its own, in a millisecond or two, and `BLOCK_SIZE` of them are appended to the arrays together.
Both are commits of a checked folder (`storage/folder.py`): a snapshot that was added survives a kill or a power cut,
and one that was interrupted leaves nothing behind.  `read_snapshots` also reads those that are not in the arrays yet;
`close` appends them, so that any zarr reader finds them.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.runtime.errors import StoreError, short_repr
from scansnap.storage.folder import CheckedFolder
from scansnap.storage.provenance import RESULT_FORMAT, WATCH_KIND
from scansnap.validation.validate import validated

BLOCK_SIZE = 16
"""Snapshots that are appended to the arrays together."""

CHUNK_SIZE = 64
"""Snapshots in a chunk of a quantity; a pattern is a chunk of its own."""

PENDING_FOLDER = ".pending/"
"""The files of snapshots that are not in the arrays yet."""

TEXT_DTYPE = np.dtype("<U160")
"""The type of text that differs from snapshot to snapshot: zarr's arrays have a fixed width."""

IDENTITY = {"model": "model", "probe": "probe", "rows": "rows", "probe_checksum": "a probe with the checksum"}
"""The attributes by which two watches are of the same training, and what they are called."""


@validated
def read_snapshots(path: str | Path) -> xr.Dataset:
    """The snapshots that a store holds so far; arrays stay on disk until they are used."""
    path = Path(path)
    if not path.exists():
        raise StoreError(f"{path} does not exist: give the folder that a watch stores its snapshots in.")
    folder = CheckedFolder(path)
    try:
        snapshots = _open(folder)
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"{path} is not a store of snapshots: give what ss.watch(..., store=...) wrote.") from error
    if snapshots.attrs.get("kind") != WATCH_KIND:
        raise StoreError(f"{path} holds something else than snapshots: give what ss.watch(..., store=...) wrote.")
    return snapshots


def _open(folder: CheckedFolder) -> xr.Dataset:
    """The snapshots in the arrays, and behind them those that are pending, appended in memory."""
    from scansnap.storage.zarr_store import Overlay, append, open_dataset

    while True:
        folder.check_presence()
        pending = _pending(folder)
        if not pending:
            return open_dataset(folder)
        snapshots, overlay = _read_all(folder, pending), Overlay(folder)
        if len(snapshots) == len(pending):
            append(overlay, _stack(snapshots))
        if pending == _pending(folder):  # or else a writer has appended them meanwhile
            return open_dataset(overlay)


def _pending(folder: CheckedFolder) -> list[str]:
    return sorted(name for name in folder.names() if name.startswith(PENDING_FOLDER))


def _read_all(folder: CheckedFolder, pending: list[str]) -> list[dict[str, NDArray[Any]]]:
    """The arrays of pending snapshots, without those that a writer has appended meanwhile."""
    snapshots = []
    for data in filter(None, map(folder.read, pending)):
        with np.load(io.BytesIO(data), allow_pickle=False) as content:
            snapshots.append({variable: content[variable] for variable in content.files})
    return snapshots


def _stack(snapshots: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of several snapshots, with the snapshot as their first axis."""
    return {name: np.stack([snapshot[name] for snapshot in snapshots]) for name in snapshots[0]}


def _facts(snapshots: xr.Dataset) -> dict[str, Any]:
    """What two watches of the same training have in common: everything but the quantities."""
    facts = {words: snapshots.attrs.get(name) for name, words in IDENTITY.items()}
    facts |= {f"{dim} count": size for dim, size in snapshots.sizes.items() if dim != "step"}
    labels = {name: values for name, values in snapshots.coords.items() if "step" not in values.dims}
    return facts | {f"{name} names": values.values.tolist() for name, values in labels.items()}


def _listed(names: set[str]) -> str:
    """The first names, and how many more there are."""
    first = ", ".join(sorted(names)[:3])
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"


class SnapshotStore:
    """A store that one process appends snapshots to; an existing one is continued.

    `last_step` is that of the last snapshot, or None if there is none.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._folder = CheckedFolder(self.path)
        self._folder.lock()
        try:
            self._folder.refuse_damage()
            steps = read_snapshots(self.path)["step"].values.tolist() if self._folder.files else []
        except BaseException:
            self._folder.unlock()
            raise
        self.last_step: int | None = steps[-1] if steps else None
        self._is_checked = False  # whether the snapshots that come fit those that are there
        self._is_closed = False

    def append(self, snapshot: xr.Dataset) -> None:
        """Add a snapshot: a Dataset with one `step`, later than the last one that is there."""
        step = int(snapshot["step"].item())
        if self._is_closed:
            raise StoreError(
                f"{self.path} was closed before step {step:,}, so the snapshot at it was not added: make another watch."
            )
        if self.last_step is not None and step <= self.last_step:
            raise StoreError(
                f"{self.path} has snapshots up to step {self.last_step:,}, so the snapshot at step {step:,} was not "
                "added: count on from there, or give another store."
            )
        try:
            with self._folder.staging():
                if not self._is_checked:
                    self._begin(snapshot)
                values = {str(name): v.values[0] for name, v in snapshot.variables.items() if v.dims[:1] == ("step",)}
                self._folder.write_with(f"{PENDING_FOLDER}{step:020}", lambda file: np.savez(file, **values))
                self._folder.commit()
            self._is_checked, self.last_step = True, step
            if len(_pending(self._folder)) >= BLOCK_SIZE:
                self._merge()
        except OSError as error:
            are_kept = "are kept" if self.path.exists() else "were deleted with it"
            raise StoreError(
                f"cannot write {self.path}: {error.strerror or error}; the snapshots before step {step:,} {are_kept}."
            ) from None

    def _merge(self) -> None:
        """Append the snapshots that are pending to the arrays."""
        from scansnap.storage.zarr_store import append

        pending = _pending(self._folder)
        with self._folder.staging():
            append(self._folder, _stack(_read_all(self._folder, pending)))
            for name in pending:
                self._folder.remove(name)
            self._folder.commit()

    def clear(self) -> None:
        """Begin anew, without the snapshots that are there."""
        for name in self._folder.names():
            self._folder.remove(name)
        self._folder.commit()
        self.last_step, self._is_checked = None, False

    def check(self, snapshot: xr.Dataset) -> None:
        """Refuse a snapshot of another model, on another probe or with other quantities than those that are there."""
        stored = read_snapshots(self.path)
        given = _facts(snapshot)
        for name, there in _facts(stored).items():
            if there != (here := given.get(name)):
                raise StoreError(
                    f"{self.path} holds snapshots with {name} {short_repr(there)} and not {short_repr(here)}: give the "
                    "same to continue it, or another store."
                )
        old, new = ({str(name) for name in dataset.data_vars} for dataset in (stored, snapshot))
        differences = {"also has": old - new, "lacks": new - old}
        changes = [f"it {word} {_listed(names)}" for word, names in differences.items() if names]
        if changes:
            raise StoreError(
                f"{self.path} was begun with another record= or pattern=: {', and '.join(changes)}; give the same to "
                "continue it, or another store."
            )

    def close(self) -> None:
        """Append what is pending, and let other processes write."""
        was_closed, self._is_closed = self._is_closed, True
        try:
            if not was_closed and _pending(self._folder):
                self._merge()
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror or error}; its snapshots are kept.") from None
        finally:
            self._folder.unlock()

    def _begin(self, snapshot: xr.Dataset) -> None:
        """Create the arrays for snapshots like this one, or check that those that are there are for such snapshots."""
        from scansnap.storage.zarr_store import consolidate, write_dataset

        if self._folder.files:
            self.check(snapshot)
            return
        empty = snapshot.isel(step=slice(0)).assign_attrs(kind=WATCH_KIND, format=RESULT_FORMAT)
        chunks = {}
        for name, values in empty.variables.items():
            if values.dims[:1] == ("step",):
                if values.dtype.kind == "U":
                    empty[name] = values.astype(TEXT_DTYPE)
                chunks[str(name)] = (1 if values.ndim > 3 else CHUNK_SIZE, *values.shape[1:])
        write_dataset(self._folder, empty, chunks)
        consolidate(self._folder)
