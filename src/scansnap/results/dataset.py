"""The labeled form of a result.

Dimensions are among run, step | time, layer, head, class, query, token, output, bucket; in a sweep the axes of its grid
replace `run`.  `token` runs over the contextual tokens (the only ones that can receive attention), `output` over the
whole vocabulary.  Coordinates say what each entry is; attributes carry the configuration and the origin.

`Recorder` holds everything that runs record, in memory or in a store.  A variable has leading axes, such as the run,
and usually a record axis; it is written in blocks.  `Records` collects the records of runs that advance together and
writes them block by block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.named_classes import classes_to_mapping
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource
from scansnap.results.store import RunStore, Variable, inner, load
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import check_memory
from scansnap.storage.files import check_disk_space
from scansnap.systems.quantity import Quantity
from scansnap.systems.yz.compact import CompactLayout

UNITS = {"units": "updates"}


def classes_sizes(layout: CompactLayout, layers: int = 1) -> dict[str, int]:
    """The size of every labeled dimension."""
    return {
        "layer": layers,
        "head": layout.layer.heads,
        "class": layout.classes.num_classes,
        "query": layout.num_queries,
        "token": layout.num_rows,
        "output": layout.classes.vocab_size,
        "bucket": layout.classes.num_buckets,
    }


def classes_coordinates(layout: CompactLayout, record: Sequence[Quantity], *, layers: int = 1) -> dict[str, Any]:
    """The coordinates of every dimension that the quantities have, and those of the classes."""
    classes = layout.classes

    def names(tokens: NDArray[np.int64]) -> NDArray[np.str_]:
        return np.array([classes.name(int(token)) for token in tokens])

    coords: dict[str, Any] = {
        "class": np.arange(classes.num_classes),
        "next_token": ("class", classes.next_token),
        "query_token": ("class", classes.query),
        "next_token_name": ("class", names(classes.next_token)),
        "query_token_name": ("class", names(classes.query)),
        "class_weight": ("class", classes.weights),
        "query": classes.queries,
        "token": layout.rows,
        "token_kind": ("token", classes.kinds_of(layout.rows)),
        "token_name": ("token", names(layout.rows)),
        "layer": np.arange(layers),
        "head": np.arange(layout.layer.heads),
        "bucket": np.arange(classes.num_buckets),
        "bucket_size": ("bucket", classes.sizes),
    }
    if layout.layer.addition is not None:
        coords["local_token_kind"] = (("query", "token"), _local_kinds(layout))
    used = {"class"}.union(*(quantity.dims for quantity in record))
    if "output" in used:  # as many as there are tokens
        coords["output"] = np.arange(classes.vocab_size)

    def is_used(name: str) -> bool:
        dims = coords[name][0] if isinstance(coords[name], tuple) else name
        return set([dims] if isinstance(dims, str) else dims) <= used

    own: dict[str, NDArray[Any]] = {}
    for quantity in record:
        for dim, values in quantity.coords.items():
            if dim in coords or not np.array_equal(own.setdefault(dim, np.asarray(values)), np.asarray(values)):
                raise InputError(
                    f"the quantity {quantity.name} gives '{dim}' values that differ from those in this result: "
                    "give the dimension another name."
                )
    return {**{name: coords[name] for name in coords if is_used(name)}, **own}


def _local_kinds(layout: CompactLayout) -> NDArray[np.str_]:
    """For each query and contextual token: common or distinct within the query's classes, or absent (Section 7)."""
    classes = layout.classes
    kinds = np.full((layout.num_queries, layout.num_rows), "absent", dtype="U8")
    for row, query in enumerate(classes.queries):
        own = np.concatenate([classes.local_distinct_tokens(int(i)) for i in classes.of_query(int(query))])
        kinds[row, np.searchsorted(layout.rows, own)] = "distinct"
        kinds[row, np.searchsorted(layout.rows, classes.local_common_tokens(int(query)))] = "common"
    return kinds


def classes_attributes(source: DataSource) -> dict[str, str]:
    """The attributes of a result that say what (Y, Z) learned from."""
    text = _classes_text(source.classes, source.classes.token_names)
    return {"classes": text, "classes_fingerprint": source.fingerprint}


@lru_cache(maxsize=4)
def _classes_text(classes: SequenceClasses, token_names: tuple[str, ...] | None) -> str:
    """The classes as JSON, written once; equal classes may have different names."""
    return json.dumps(classes_to_mapping(classes))


def run_dataset(
    runs: Mapping[str, NDArray[Any]], axis: str, records: NDArray[Any], coords: Mapping[str, Any], attrs: dict[str, Any]
) -> xr.Dataset:
    """A result without variables: runs along `run`, records along `step` or `time`."""
    check_dimension_names(coords, {"run", axis, *runs})
    count = len(next(iter(runs.values())))
    return xr.Dataset(
        coords={
            "run": np.arange(count),
            **{name: ("run", values) for name, values in runs.items()},
            axis: (axis, records, UNITS),
            **coords,
        },
        attrs=attrs,
    )


def check_dimension_names(coords: Iterable[str], runs: Iterable[str]) -> None:
    """Refuse a user's dimension that has the name of a coordinate of runs or records."""
    if clash := sorted({*coords} & {*runs}):
        raise InputError(f"'{clash[0]}' is a coordinate of this result: give the quantity's dimension another name.")


def run_variables(
    record: Sequence[Quantity], dimension_sizes: Mapping[str, int], axis: str, runs: int, records: int, dtype: str
) -> dict[str, Variable]:
    """Every quantity as an array (run, axis, ...), stored in blocks of records."""
    variables = {}
    for quantity in record:
        shape = (runs, records, *quantity.shape(dimension_sizes))
        kind = np.dtype("float64" if quantity.full_precision else dtype)
        variables[quantity.name] = Variable(("run", axis, *quantity.dims), shape, kind, shape, quantity.attributes)
    block = block_of(variables, records)
    return {
        name: replace(variable, chunks=(runs, block, *(max(size, 1) for size in variable.shape[2:])))
        for name, variable in variables.items()
    }


# --- records ----------------------------------------------------------------------------------------------------------


Arrays = Mapping[str, NDArray[np.generic]]

BLOCK_BYTES = 32 * 2**20
"""A block of records on disk is about this large, and at most `BLOCK_RECORDS` long."""

BLOCK_RECORDS = 64

FINITE = frozenset({"loss", "attention", "attention_logits", "decoder"})
"""A run of a system in which one of these is not finite is not "ok"; others may be NaN, as entropy over no token is."""


class Recorder:
    """The variables of a result, in memory or, with a path, in a store that one process writes.

    `more_bytes` is the space that other files take on disk, such as two checkpoints while one replaces the other.
    """

    def __init__(
        self,
        template: xr.Dataset,
        variables: Mapping[str, Variable],
        path: str | Path | None = None,
        *,
        more_bytes: float = 0.0,
    ) -> None:
        if clash := [name for name in variables if name in template.coords or name in template.dims]:
            raise InputError(
                f"'{clash[0]}' is a coordinate of this result and cannot be recorded under that name: rename the "
                "quantity, or leave it or the axis out."
            )
        self._template = template
        self._variables = variables
        if path is not None and not Path(path).exists():
            needed = sum(variable.nbytes for variable in variables.values()) + more_bytes
            check_disk_space(Path(path), needed, "the result takes", "record less, less often, or elsewhere")
        self.store = RunStore.begin(path, template, variables) if path is not None else None
        self._values: dict[str, NDArray[np.generic]] = {}
        self._coordinates: dict[str, NDArray[np.generic]] = {}  # of a result in memory, if any were written
        self._finite = FINITE if template.attrs.get("kind") in ("train", "flow") else frozenset[str]()
        self._not_finite = np.zeros(template.sizes.get("run", 0), np.bool_)
        if self.store is None:
            _check_memory(variables, sum(variable.nbytes for variable in variables.values()))
            self._values = {name: np.full(v.shape, np.nan, v.dtype) for name, v in variables.items()}

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.store is not None:
            if isinstance(error, KeyboardInterrupt):
                error.add_note(self.store.describe_progress())
            self.store.unlock()

    def finished(self) -> xr.Dataset | None:
        """The result, if the store already holds this work, finished."""
        return load(self.store.path) if self.store is not None and self.store.finished else None

    def checkpoint(self) -> tuple[int, dict[str, NDArray[np.generic]]] | None:
        """The last checkpoint of the store, or None."""
        return self.store.read_checkpoint() if self.store is not None else None

    def write(self, block: Arrays, place: tuple[slice, ...]) -> None:
        """Write a block of variables, or of coordinates, at a place of their leading axes."""
        for values in (values for name, values in block.items() if name in self._finite):
            self._not_finite[place[0]] |= ~np.isfinite(values).reshape(len(values), -1).all(1)
        if self.store is not None:
            self.store.write(block, place)
            return
        for name, values in block.items():
            if name not in self._values:
                self._coordinates.setdefault(name, self._template[name].values.copy())
            target = self._values[name] if name in self._values else self._coordinates[name]
            target[inner(place, values)] = values

    def finish(self, coordinates: Mapping[str, NDArray[np.generic]]) -> xr.Dataset:
        """The finished result, with the coordinates that are known only now.

        A run with a number that is not finite has failed, whatever its engine says.
        """
        if self._not_finite.any():
            status = coordinates["status"]
            failed = np.where((status == "ok") & self._not_finite, "failed", status).astype(status.dtype)
            coordinates = {**coordinates, "status": failed}
        if self.store is not None:
            self.store.finish(coordinates)
            return load(self.store.path)
        dataset = self._template.assign_coords(
            {name: (self._template[name].dims, values) for name, values in {**self._coordinates, **coordinates}.items()}
        )
        variables = {
            name: (variable.dimensions, self._values[name], variable.attributes)
            for name, variable in self._variables.items()
        }
        return dataset.assign(variables).assign_attrs(complete=1)


class Records:
    """Records of runs that advance together, (R, record, ...): held until a block of them is full, then written."""

    def __init__(self, recorder: Recorder, variables: Mapping[str, Variable], records: int) -> None:
        self._recorder = recorder
        self._first = 0  # the first record held
        self._records = records
        self._block = block_of(variables, records)
        _check_memory(variables, sum(v.nbytes // max(records, 1) * self._block for v in variables.values()))
        self._values = {
            name: np.full((v.shape[0], self._block, *v.shape[2:]), np.nan, v.dtype) for name, v in variables.items()
        }

    def put(self, record: int, values: Arrays, *, lost: NDArray[np.bool_] | None = None) -> None:
        """Add one record of some variables (R, ...), with NaN for runs that are `lost`."""
        if record - self._first >= self._block:
            self.flush(record)
        for name, array in values.items():
            self._values[name][:, record - self._first] = array
        if lost is not None:
            for held in self._values.values():
                held[lost, record - self._first] = np.nan

    def flush(self, upto: int) -> None:
        """Write the records before `upto` and hold those from it on."""
        if upto <= self._first:
            return
        block = {name: values[:, : upto - self._first] for name, values in self._values.items()}
        self._recorder.write(block, (slice(None), slice(self._first, upto)))
        for values in self._values.values():
            values[:] = np.nan
        self._first = upto

    def skip_to(self, record: int) -> None:
        """Begin at a later record: those before it are in the store."""
        self._first = record

    def finish(self, coordinates: Mapping[str, NDArray[np.generic]]) -> xr.Dataset:
        """Write what is held, and finish the result."""
        self.flush(self._records)
        return self._recorder.finish(coordinates)


def block_of(variables: Mapping[str, Variable], records: int) -> int:
    """How many records go into a block."""
    per_record = sum(variable.nbytes for variable in variables.values()) // max(records, 1)
    return min(int(np.clip(BLOCK_BYTES // max(per_record, 1), 1, BLOCK_RECORDS)), max(records, 1))


def _check_memory(variables: Mapping[str, Variable], needed: float) -> None:
    advice = "record fewer variables, less often, or to a store"
    check_memory(f"the records of {', '.join(variables)} need", needed, advice)
