"""The runs behind Figures 6, 11 and 12: Syn-Medium on the grid of learning rates, 64 cells of many seeds.

One sweep makes all runs with the same number of queries.  They share their seeds, and with them starts and
batches.  The dataset has what the figures need about each class's distinct tokens after training:

- `attention`: c_n (Eq. 5), from the exact P(l|n) and the learned z_m;
- `softmax`: exp(z_ml)/sum_l' exp(z_ml') over all M tokens, the softmax value of the query's row that Appendix G names.
  Tokens that are never context keep their random start, uniform in ±a with a = 1/√M, and enter the sum by their
  expectation, sinh(a)/a each: the sum is off by some 0.1%.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import syn_medium
from scansnap.dynamics.published import SYN_MEDIUM
from scansnap.figures.recipe import setting_in_words, sweep_setting
from scansnap.figures.statistics import Family, enough_seeds

QUERIES = (1, 3, 5, 10)
RATES = {"lr_z": (0.5, 1.0, 2.0, 3.0), "lr_y_over_lr_z": (1.0, 2.0, 5.0, 10.0)}
CELL = ("num_query", *RATES, "seed")
SETTING = (
    f"Syn-Medium, 1, 3, 5, 10 queries with 2 next tokens each, SGD with momentum {SYN_MEDIUM.momentum:g}, η_Z = 0.5, "
    f"1, 2, 3, η_Y/η_Z = 1, 2, 5, 10, {setting_in_words(SYN_MEDIUM)}"
)


def make(*, num_seeds: int = 10) -> xr.Dataset:
    """`entropy` (num_query, lr_z, lr_y_over_lr_z, seed), `attention` and `softmax` (.., class, rank).

    `rank` orders the distinct tokens of a class by P(l|n).  Values are NaN for classes that a setting does not have.
    """
    began = time.perf_counter()
    num_seeds = enough_seeds(num_seeds)
    parts = [_cells(syn_medium(num_query=num_query), num_seeds) for num_query in QUERIES]
    dataset = xr.concat(parts, xr.DataArray(list(QUERIES), dims="num_query", name="num_query"), join="outer")
    dataset = dataset.assign_coords(vocab_size=("num_query", [syn_medium(num_query=q).vocab_size for q in QUERIES]))
    options = {**SYN_MEDIUM.to_dict(), "num_query": QUERIES, **RATES, "num_seeds": num_seeds}
    attributes = {"options": json.dumps(options), "seconds": time.perf_counter() - began}
    return dataset.transpose(*CELL, ...).assign_attrs(attributes)


def _cells(classes: SequenceClasses, num_seeds: int) -> xr.Dataset:
    """All cells with one number of queries."""
    runs = sweep_setting(
        classes,
        SYN_MEDIUM,
        **RATES,
        seeds=range(num_seeds),
        record_every=None,
        record=("attention", "attention_logits", "entropy"),
    )
    last = runs.isel(step=-1, layer=0, head=0, drop=True)
    logits = last["attention_logits"]
    last["softmax"] = (logits.dims, query_softmax(logits.values, classes.vocab_size), {"units": "1"})
    distinct = [classes.distinct_tokens(i) for i in range(classes.num_classes)]
    place = {
        "class": xr.DataArray(np.arange(classes.num_classes), dims="class"),
        "query": xr.DataArray(classes.query, dims="class"),
        "token": xr.DataArray(distinct, dims=("class", "rank"), coords={"rank": np.arange(len(distinct[0]))}),
    }
    dataset = last[["attention", "softmax"]].sel(place)
    dataset["entropy"] = last["entropy"].mean("class").astype(float).assign_attrs(units="nats")
    return dataset.reset_coords(drop=True)


def query_softmax(logits: NDArray[np.floating], vocab_size: int) -> NDArray[np.float64]:
    """The softmax of z_m over the whole vocabulary, for the contextual tokens (.., token), whose logits are given."""
    weights = np.exp(logits.astype(np.float64))
    bound = vocab_size**-0.5
    rest = (vocab_size - logits.shape[-1]) * np.sinh(bound) / bound
    return weights / (weights.sum(-1, keepdims=True) + rest)


def queries(num_query: float) -> str:
    """A number of queries in words: `1 query`, `3 queries`."""
    return f"{num_query:g} quer{'y' if num_query == 1 else 'ies'}"


def cell(num_query: float, **rates: float) -> str:
    """A cell of the grid in words."""
    named = {"lr_z": "η_Z", "lr_y_over_lr_z": "η_Y/η_Z"}
    return ", ".join([queries(num_query), *(f"{named[name]} = {value:g}" for name, value in rates.items())])


def neighbors(values: xr.DataArray, along: str, *, falls: bool) -> Family:
    """Differences (over seeds) between neighbors of the grid along one axis, negated if `values` should fall."""
    other = "lr_y_over_lr_z" if along == "lr_z" else "lr_z"
    labels, rows = [], []
    for num_query in values["num_query"].values:
        for fixed in values[other].values:
            for low, high in pairwise(values[along].values):
                line = values.sel({"num_query": num_query, other: fixed})
                change = (line.sel({along: high}) - line.sel({along: low})).values
                rows.append(-change if falls else change)
                labels.append(f"{cell(num_query, **{other: fixed})}, {low:g} → {high:g}")
    return Family(labels, np.array(rows))
