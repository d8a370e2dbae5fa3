"""The labelled form of a result.

Dimensions are among run, step | time, class, query, head, layer, token, output.  `token` runs over the contextual
tokens (the only ones that attention can be on), `output` over the whole vocabulary; `head` and `layer` are there if
there are several.  Coordinates say what each entry is; attributes carry the configuration and the origin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.classes_file import classes_to_mapping
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.model.compact import CompactLayout
from scansnap.results.metrics import entropy
from scansnap.results.provenance import provenance

FORMAT = 1
"""The layout of results; a store with another number was written by a version that this one does not read."""

DIMENSIONS = {
    "loss": ("run", "RECORD"),
    "accuracy": ("run", "RECORD"),
    "fresh_loss": ("run", "RECORD"),
    "fresh_accuracy": ("run", "RECORD"),
    "entropy": ("run", "RECORD", "class", "HEAD", "LAYER"),
    "attention": ("run", "RECORD", "class", "HEAD", "LAYER", "token"),
    "attention_logits": ("run", "RECORD", "query", "HEAD", "token"),
    "decoder": ("run", "RECORD", "HEAD", "token", "output"),
    "query_decoder": ("run", "RECORD", "HEAD", "query", "output"),
    "position_bias": ("run", "RECORD", "bucket"),
}
"""Every variable's dimensions; RECORD is `step` or `time`, HEAD and LAYER are left out where there is one."""

MEASURES = ("loss", "accuracy", "fresh_loss", "fresh_accuracy")
"""Variables that are one number for a record: kept in float64 whatever the arithmetic."""

ATTRIBUTES = {
    "loss": {"long_name": "cross-entropy", "units": "nats"},
    "accuracy": {"long_name": "share of sequences whose next token has the largest logit", "units": "1"},
    "fresh_loss": {"long_name": "cross-entropy on sequences that no update sees", "units": "nats"},
    "fresh_accuracy": {"long_name": "accuracy on sequences that no update sees", "units": "1"},
    "entropy": {"long_name": "entropy of attention on distinct tokens", "units": "nats"},
    "attention": {"long_name": "attention c_n (Eq. 5)", "units": "1"},
    "attention_logits": {"long_name": "attention logits Z", "units": "1"},
    "decoder": {"long_name": "decoder Y, rows of contextual tokens", "units": "1"},
    "query_decoder": {"long_name": "decoder Y, rows of query tokens (residual connection)", "units": "1"},
    "position_bias": {"long_name": "bias on attention logits by bucket of positions", "units": "1"},
}


def attention_from_logits(
    layout: CompactLayout, logits: NDArray[np.floating], probs: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """c_n (Eq. 5) from the exact P(l|n) and the learned z (..., Q, S), as (..., K, S); of heads (..., Q, H, S) too.

    `probs` (..., K, S) takes the place of P(l|n) where positions weigh tokens; only ratios matter.
    """
    if layout.architecture.heads > 1:
        one_head = replace(layout, architecture=replace(layout.architecture, heads=1))
        per_head = None if probs is None else probs[..., None, :, :]
        return attention_from_logits(one_head, logits.swapaxes(-3, -2), per_head).swapaxes(-3, -2)
    z = logits.astype(np.float64)[..., layout.query_index[:, None], layout.support]  # (..., K, W)
    # In row-major order, so that sums over tokens are made in the same order however many runs there are.
    z = np.ascontiguousarray(np.where(layout.support_probs > 0, z, -np.inf))
    with np.errstate(invalid="ignore"):  # a diverged run's logits are not finite, and neither is its attention
        weights = np.exp(z - z.max(-1, keepdims=True))
        weights = weights * (layout.support_probs if probs is None else _on_support(layout, probs))
        weights /= weights.sum(-1, keepdims=True)
    dense = np.zeros((*logits.shape[:-2], len(layout.size), layout.num_rows))
    for i, size in enumerate(layout.size):
        dense[..., i, layout.support[i, :size]] = weights[..., i, :size]
    return dense


def _on_support(layout: CompactLayout, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (..., K, S) at each class's own tokens (..., K, W), 0 for padding."""
    index = np.broadcast_to(layout.support.astype(np.int64), (*probs.shape[:-2], *layout.support.shape))
    return np.take_along_axis(probs, index, axis=-1) * (layout.support_probs > 0)


def distinct_entropy(layout: CompactLayout, attention: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy of attention (..., K, S) on each class's distinct tokens, renormalised there (..., K)."""
    distinct = layout.classes.token_kinds[layout.rows] == "distinct"
    return entropy(attention[..., distinct]) if distinct.any() else np.full(attention.shape[:-1], np.nan)


def shape_of(name: str, layout: CompactLayout, runs: int, records: int) -> tuple[int, ...]:
    """The size of a variable."""
    sizes = {
        "run": runs,
        "RECORD": records,
        "class": layout.classes.num_classes,
        "query": layout.num_queries,
        "token": layout.num_rows,
        "output": layout.classes.vocab_size,
        "head": layout.architecture.heads,
        "layer": layout.architecture.layers,
        "bucket": getattr(layout.classes, "num_buckets", 0),
    }
    return tuple(sizes[dimension] for dimension in dimensions_of(name, "RECORD", layout))


def dimensions_of(name: str, axis: str, layout: CompactLayout) -> tuple[str, ...]:
    """A variable's dimensions with the record axis named, and those of heads and layers where there are several."""
    names = {"RECORD": axis, "HEAD": "head", "LAYER": "layer"}
    single = {"HEAD": layout.architecture.heads == 1, "LAYER": layout.architecture.layers == 1}
    return tuple(names.get(one, one) for one in DIMENSIONS[name] if not single.get(one, False))


def coordinates(
    layout: CompactLayout,
    axis: str,
    records: NDArray[Any],
    runs: Mapping[str, NDArray[Any]],
    variables: tuple[str, ...],
) -> xr.Dataset:
    """A dataset without variables: the coordinates of every dimension that the variables have."""
    classes = layout.classes
    used = {dimension for name in variables for dimension in dimensions_of(name, axis, layout)}
    names = np.array([classes.name(int(token)) for token in layout.rows])
    coords: dict[str, Any] = {
        "run": np.arange(len(next(iter(runs.values())))),
        **{name: ("run", values) for name, values in runs.items()},
        axis: (axis, records, {"units": "steps", "long_name": "updates with one sampled class, or their expectation"}),
        "class": np.arange(classes.num_classes),
        "next_token": ("class", classes.next_token),
        "query_token": ("class", classes.query),
        "next_token_name": ("class", np.array([classes.name(int(token)) for token in classes.next_token])),
        "query_token_name": ("class", np.array([classes.name(int(token)) for token in classes.query])),
        "class_weight": ("class", classes.weights),
        "query": classes.queries,
        "token": layout.rows,
        "token_kind": ("token", classes.token_kinds[layout.rows]),
        "token_name": ("token", names),
        "output": np.arange(classes.vocab_size),
        **({"local_token_kind": (("query", "token"), _local_kinds(layout))} if layout.architecture.residual else {}),
        "head": np.arange(layout.architecture.heads),
        "layer": np.arange(1, layout.architecture.layers + 1),
        "bucket": np.arange(getattr(classes, "num_buckets", 0)),
        "bucket_size": ("bucket", getattr(classes, "sizes", np.zeros(0, np.int64))),
    }
    always = {"run", axis, "class", *runs}

    def wanted(name: str) -> bool:
        dims = coords[name][0] if isinstance(coords[name], tuple) else name
        return name in always or set([dims] if isinstance(dims, str) else dims) <= used | {"class"}

    return xr.Dataset(coords={name: value for name, value in coords.items() if wanted(name)})


def _local_kinds(layout: CompactLayout) -> NDArray[np.str_]:
    """For each query and contextual token: common or distinct within the query's classes, or absent (Section 7)."""
    classes = layout.classes
    kinds = np.full((layout.num_queries, layout.num_rows), "absent", dtype="U8")
    for row, query in enumerate(classes.queries):
        own = np.concatenate([classes.local_distinct_tokens(int(i)) for i in classes.of_query(int(query))])
        kinds[row, np.searchsorted(layout.rows, own)] = "distinct"
        kinds[row, np.searchsorted(layout.rows, classes.local_common_tokens(int(query)))] = "common"
    return kinds


def attributes(classes: SequenceClasses, kind: str, options: Mapping[str, Any], title: str) -> dict[str, Any]:
    """What a result says of itself: the whole configuration, as text, and where it comes from."""
    return {
        "title": title,
        "kind": kind,
        "format": FORMAT,
        "options": json.dumps(dict(options), sort_keys=True),
        "classes": json.dumps(classes_to_mapping(classes)),
        "classes_fingerprint": classes.fingerprint,
        **provenance(),
    }
