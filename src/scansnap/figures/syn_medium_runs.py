"""The runs behind Figures 6, 11 and 12: Syn-Medium on the grid of learning rates, 64 cells of many seeds.

One call of `train` makes all runs with the same number of queries.  They share their seeds, and with them starts and
batches.  The dataset has what the figures need about each class's distinct tokens after training:

- `attention`: c_n (Eq. 5), from the exact P(l|n) and the learned z_m;
- `softmax`: exp(z_ml)/sum_l' exp(z_ml') over all M tokens, the softmax value of the query's row that Appendix G names.
  Tokens that are never context keep their random start, uniform in ±a with a = 1/√M, and enter the sum by their
  expectation, sinh(a)/a each: the sum is off by some 0.1%.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import syn_medium
from scansnap.dynamics.train import train
from scansnap.figures.described import described
from scansnap.figures.statistics import Family, enough_seeds

QUERIES = (1, 3, 5, 10)
LR_Z = (0.5, 1.0, 2.0, 3.0)
RATIOS = (1.0, 2.0, 5.0, 10.0)
CELL = ("num_query", "lr_z", "lr_y_over_lr_z", "seed")
OPTIONS: dict[str, Any] = {
    "steps": 100, "batch_size": 128, "seq_len": 128, "momentum": 0.9, "init": "uniform",
}  # fmt: skip
SETTING = (
    "Syn-Medium, 1, 3, 5, 10 queries with 2 next tokens each, SGD with momentum 0.9, η_Z = 0.5, 1, 2, 3, "
    "η_Y/η_Z = 1, 2, 5, 10, batch 128, T = 128, start uniform in ±1/√M, 100 updates"
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
    return described(
        dataset.transpose(*CELL, ...), "Syn-Medium on the grid of Figure 6", {**OPTIONS, "num_seeds": num_seeds}, began
    )


def _cells(classes: SequenceClasses, num_seeds: int) -> xr.Dataset:
    """All cells with one number of queries."""
    lr_z, ratio, seed = (
        axis.ravel() for axis in np.meshgrid(np.array(LR_Z), np.array(RATIOS), np.arange(num_seeds), indexing="ij")
    )
    runs = train(classes, **OPTIONS, lr_y=lr_z * ratio, lr_z=lr_z, seeds=seed.tolist(), progress=False,
                 record_every=OPTIONS["steps"], record=("attention", "attention_logits", "entropy"))  # fmt: skip
    last = runs.isel(step=-1)
    shape = (len(LR_Z), len(RATIOS), num_seeds)
    columns = np.stack(
        [np.searchsorted(runs["token"].values, classes.distinct_tokens(i)) for i in range(classes.num_classes)]
    )
    rows = np.searchsorted(runs["query"].values, classes.query)
    attention = last["attention"].values[:, np.arange(classes.num_classes)[:, None], columns]  # (run, class, rank)
    softmax = query_softmax(last["attention_logits"].values, classes.vocab_size)[:, rows[:, None], columns]
    dims = CELL[1:]
    return xr.Dataset(
        {
            "entropy": (dims, last["entropy"].mean("class").values.reshape(shape).astype(float), {"units": "nats"}),
            "attention": ((*dims, "class", "rank"), attention.reshape(*shape, *attention.shape[1:]), {"units": "1"}),
            "softmax": ((*dims, "class", "rank"), softmax.reshape(*shape, *softmax.shape[1:]), {"units": "1"}),
        },
        coords={
            "lr_z": list(LR_Z), "lr_y_over_lr_z": list(RATIOS), "seed": np.arange(num_seeds),
            "class": np.arange(classes.num_classes), "rank": np.arange(attention.shape[-1]),
        },
    )  # fmt: skip


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
