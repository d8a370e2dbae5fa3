"""Keeping what a run shows: a block of records at a time, in memory or on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.base.errors import InputError
from scansnap.dynamics.start import Start, physical_memory
from scansnap.model.compact import CompactLayout
from scansnap.results.dataset import (
    ATTRIBUTES,
    MEASURES,
    attention_from_logits,
    dimensions_of,
    distinct_entropy,
    shape_of,
)
from scansnap.results.store import RunStore, Variable, load

BLOCK_BYTES = 32 * 2**20
"""A block of records on disk is about this large, and at most `BLOCK_RECORDS` long."""

BLOCK_RECORDS = 64


class Recorder:
    """Collects records of the variables asked for.  With a path they go to a store, block by block."""

    def __init__(
        self,
        layout: CompactLayout,
        template: xr.Dataset,
        axis: str,
        variables: tuple[str, ...],
        dtype: str,
        path: Any = None,
        *,
        start: Start,
    ) -> None:
        self._layout = layout
        self._prior = start.prior
        self._positions = start.positions
        self._template = template
        self._axis = axis
        runs, self._records = template.sizes["run"], template.sizes[axis]
        shapes = {name: shape_of(name, layout, runs, self._records) for name in variables}
        kinds = {name: np.dtype("float64" if name in MEASURES else dtype) for name in variables}
        per_record = sum(kinds[n].itemsize * int(np.prod(s)) // s[1] for n, s in shapes.items())
        self._block = int(np.clip(BLOCK_BYTES // max(per_record, 1), 1, BLOCK_RECORDS))
        self._first = 0  # the first record held
        self._store: RunStore | None = None
        if path is not None:
            described = {
                name: Variable(
                    dimensions_of(name, axis, layout),
                    shape,
                    kinds[name],
                    (shape[0], min(self._block, shape[1]), *shape[2:]),
                    ATTRIBUTES[name],
                )
                for name, shape in shapes.items()
            }
            self._store = RunStore.begin(path, template, described)
            if self._store.finished:
                return
        held = self._block if self._store else self._records
        needed, available = held * per_record, physical_memory()
        if needed > available:
            raise InputError(
                f"{held} records of {', '.join(variables)} need {needed / 2**30:.0f} GiB, more than this machine's "
                f"{available / 2**30:.0f} GiB: record fewer variables, less often, or to a store."
            )
        self._values = {n: np.full((s[0], held, *s[2:]), np.nan, kinds[n]) for n, s in shapes.items()}

    @property
    def store(self) -> RunStore | None:
        return self._store

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._store is not None:
            self._store.unlock()

    def finished(self) -> xr.Dataset | None:
        """The result, if the store held this very run, finished."""
        return load(self._store.path) if self._store and self._store.finished else None

    def put(self, record: int, values: Mapping[str, NDArray[Any]]) -> None:
        """One record of every variable (R, ...)."""
        if record - self._first >= len(next(iter(self._values.values()))[0]):
            self.flush(record)
        for name, held in self._values.items():
            held[:, record - self._first] = values[name]

    def blank(self, record: int, runs: NDArray[np.bool_]) -> None:
        """Make a record, still held, NaN for these runs."""
        for held in self._values.values():
            held[runs, record - self._first] = np.nan

    def flush(self, upto: int) -> None:
        """Write the records before `upto` and hold those from it on."""
        if self._store is None or upto <= self._first:
            return
        held = {name: values[:, : upto - self._first] for name, values in self._values.items()}
        self._store.write(held, record=self._first)
        for values in self._values.values():
            values[:] = np.nan
        self._first = upto

    def skip_to(self, record: int) -> None:
        """Begin at a later record: those before it are in the store."""
        self._first = record

    def observe(
        self,
        logits: NDArray[np.floating],
        decoder: NDArray[np.floating] | None,
        bias: NDArray[np.floating] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """The variables that follow from z (R, Q H, S), prior included, where it is recorded y (R, H D, C), and the
        positions' bias (R, G) where there is one."""
        found: dict[str, NDArray[Any]] = {}
        logits = self._layout.split_heads(logits)
        if "attention_logits" in self._values:
            found["attention_logits"] = logits - self._prior
        if "attention" in self._values or "entropy" in self._values:
            attention = attention_from_logits(self._layout, logits, self._weighed(bias))
            if "attention" in self._values:
                found["attention"] = attention
            if "entropy" in self._values:
                found["entropy"] = distinct_entropy(self._layout, attention)
        if bias is not None and "position_bias" in self._values:
            found["position_bias"] = bias
        if decoder is not None and "decoder" in self._values:
            found["decoder"] = self._layout.expand_decoder(decoder)
        if decoder is not None and "query_decoder" in self._values:
            found["query_decoder"] = self._layout.expand_decoder(decoder, queries=True)
        return found

    def observe_layers(self, attention: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """The same from the attention of several layers (R, K, L, S)."""
        return {"attention": attention, "entropy": distinct_entropy(self._layout, attention)}

    def _weighed(self, bias: NDArray[np.floating] | None) -> NDArray[np.float64] | None:
        """sum_g exp(b_g) sizes[g] P_g(l|n) (R, K, S), up to a factor, where there are positions."""
        if self._positions is None or bias is None:
            return None
        weights = np.exp(bias.astype(np.float64) - bias.max(1, keepdims=True))
        return np.einsum("rg,kgs->rks", weights, self._positions.probs)

    @property
    def wants_decoder(self) -> bool:
        return "decoder" in self._values or "query_decoder" in self._values

    def finish(self, coordinates: Mapping[str, NDArray[Any]]) -> xr.Dataset:
        """The finished result."""
        if self._store is not None:
            self.flush(self._records)
            self._store.finish(coordinates)
            return load(self._store.path)
        dataset = self._template.assign_coords({name: ("run", values) for name, values in coordinates.items()})
        for name, values in self._values.items():
            dataset[name] = (dimensions_of(name, self._axis, self._layout), values, ATTRIBUTES[name])
        return dataset.assign_attrs(complete=1)
