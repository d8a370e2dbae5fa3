"""The labeled form of a result.

Dimensions are among run, step | time, layer, head, class, query, token, output, bucket; in a sweep the axes of its grid
replace `run`.  `token` runs over the contextual tokens (the only ones that can receive attention), `output` over the
whole vocabulary.  Coordinates say what each entry is; attributes carry the configuration and the origin.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.classes_file import classes_to_mapping
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource
from scansnap.results.provenance import FORMAT, provenance
from scansnap.results.recorder import block_of
from scansnap.results.store import Variable
from scansnap.runtime.errors import InputError
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


def attributes(kind: str, title: str, options: Mapping[str, Any], **more: str | float) -> dict[str, Any]:
    """A result's attributes: the whole configuration, as text, and where the result comes from.

    `options` must hold the names of the variables under "record".
    """
    return {
        "title": title,
        "kind": kind,
        "format": FORMAT,
        "options": json.dumps(dict(options), sort_keys=True),
        **more,
        **provenance(),
    }


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
    check_apart(coords, {"run", axis, *runs})
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


def check_apart(coords: Iterable[str], runs: Iterable[str]) -> None:
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
