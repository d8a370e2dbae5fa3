"""Metrics of attention for labeled results."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.named_classes import classes_from_mapping
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.results.quantities import entropy_of
from scansnap.runtime.errors import InputError
from scansnap.runtime.snap import find_snap, late_share
from scansnap.validation.validate import validated

__all__ = [
    "distinct_entropy",
    "distinctness",
    "favored",
    "favored_entropy",
    "one_head",
    "rate_of_change",
    "record_dimension",
    "snaps",
    "sparsity",
    "top_k_mass",
]


def __dir__() -> list[str]:
    return __all__


@validated
def one_head(dataset: xr.Dataset, *, layer: int = 0, head: int = 0) -> xr.Dataset:
    """The result of one head of one layer, without these dimensions.

    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(ss.measure.one_head(run)["attention"].dims)
    ('run', 'step', 'class', 'token')
    """
    place = {name: number for name, number in (("layer", layer), ("head", head)) if name in dataset.dims}
    for name, number in place.items():
        if not 0 <= number < dataset.sizes[name]:
            raise InputError(f"{name} is {number}: this result has {name}s 0 to {dataset.sizes[name] - 1}.")
    return dataset.isel(place, drop=True)


@validated
def distinct_entropy(dataset: xr.Dataset) -> xr.DataArray:
    """Entropy of attention restricted to each class's distinct tokens and renormalized there (Figure 6's quantity).

    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(ss.measure.distinct_entropy(run).isel(step=[0, -1]).values.squeeze().round(1))
    [[2.2 2.2]
     [1.4 1. ]]
    """
    distinct = _attention(dataset).where(dataset["token_kind"] == "distinct", 0.0)
    return _entropy(distinct, "entropy on distinct tokens")


@validated
def distinctness(dataset: xr.Dataset) -> xr.DataArray:
    """How distinct each token is for each class's next token, from 0 to 1 (class, token): see `theory.distinctness`.

    >>> probs = [[0.6, 0.4, 0, 0, 0, 0], [0.3, 0.7, 0, 0, 0, 0]]
    >>> dense = ss.SequenceClasses(probs=probs, query=[2, 3], next_token=[4, 5], vocab_size=6)
    >>> run = ss.train(dense, lr_y=1.0, lr_z=1.0, steps=2)
    >>> print(ss.measure.distinctness(run).values.round(2))
    [[0.68 0.38]
     [0.32 0.62]]
    """
    from scansnap import theory

    classes, probs = _classes(dataset)
    values = theory.distinctness(probs, weights=classes.weights, next_token=classes.next_token)
    return _of_classes(dataset, classes, values, "distinctness")


@validated
def favored(dataset: xr.Dataset) -> xr.DataArray:
    """Which tokens each class favors (class, token): its distinct ones, and those that it moves up at first.

    Unlike distinct tokens there are some in all classes that differ and share a token: see `theory.favored`.

    >>> probs = [[0.6, 0.4, 0, 0, 0, 0], [0.3, 0.7, 0, 0, 0, 0]]
    >>> dense = ss.SequenceClasses(probs=probs, query=[2, 3], next_token=[4, 5], vocab_size=6)
    >>> run = ss.train(dense, lr_y=1.0, lr_z=1.0, steps=2)
    >>> print(ss.measure.favored(run).values)
    [[ True False]
     [False  True]]
    """
    from scansnap import theory

    classes, probs = _classes(dataset)
    values = theory.favored(
        probs, weights=classes.weights, next_token=classes.next_token, vocab_size=classes.vocab_size
    )
    return _of_classes(dataset, classes, values, "favored")


@validated
def favored_entropy(dataset: xr.Dataset) -> xr.DataArray:
    """Entropy of attention restricted to each class's favored tokens and renormalized there.

    It is `distinct_entropy` where only distinct tokens are favored, and exists for classes without distinct tokens.

    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(ss.measure.favored_entropy(run).isel(step=[0, -1]).values.squeeze().round(1))
    [[2.2 2.2]
     [1.4 1. ]]
    """
    on_favored = _attention(dataset).where(favored(dataset), 0.0)
    return _entropy(on_favored, "entropy on favored tokens")


@validated
def top_k_mass(dataset: xr.Dataset, k: int = 1) -> xr.DataArray:
    """The share of attention on the k most attended tokens of each class.

    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(ss.measure.top_k_mass(run, k=2).isel(step=[0, -1]).values.squeeze().round(1))
    [[0.1 0.1]
     [0.6 0.9]]
    """
    attention = _attention(dataset)
    if not 1 <= k <= attention.sizes["token"]:
        raise InputError(f"k is {k}: give a number of tokens from 1 to {attention.sizes['token']}.")
    mass = xr.apply_ufunc(lambda a: np.partition(a, -k)[..., -k:].sum(-1), attention, input_core_dims=[["token"]])
    return _labeled(mass, "top_k_mass", f"attention on the top {k}")


@validated
def sparsity(dataset: xr.Dataset) -> xr.DataArray:
    """0 if a class attends equally to all contextual tokens, near 1 if it attends to one.

    It is 1 - 1/(N sum_l c_l^2) over N tokens.  1/sum_l c_l^2 is the participation ratio: the number of tokens that
    attention is effectively spread over.

    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(ss.measure.sparsity(run).isel(step=[0, -1]).values.squeeze().round(1))
    [[0.4 0.4]
     [0.9 0.9]]
    """
    attention = _attention(dataset)
    effective = attention.sum("token", skipna=False) ** 2 / (attention**2).sum("token", skipna=False)
    return _labeled(1.0 - effective / attention.sizes["token"], "sparsity", "sparsity")


@validated
def rate_of_change(dataset: xr.Dataset) -> xr.DataArray:
    """Attention that moved between successive records, half their l1 distance, per step or unit of time.

    The first record has nothing before it and gets NaN.

    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(ss.measure.rate_of_change(run).isel(step=[5, 50]).values.squeeze().round(2))
    [[0.05 0.1 ]
     [0.   0.  ]]
    """
    attention = _attention(dataset)
    axis = record_dimension(dataset)
    if dataset.sizes[axis] < 2:
        raise InputError(f"the result has one record along '{axis}': a rate of change needs at least two.")
    if (np.diff(dataset[axis].values) <= 0).any():
        raise InputError(f"the values along '{axis}' do not increase: give the records in order, each once.")
    before = {axis: 1}
    moved = 0.5 * abs(attention - attention.shift(before)).sum("token", skipna=False)
    rate = moved / (dataset[axis] - dataset[axis].shift(before))
    return _labeled(rate, "rate_of_change", "attention moved", f"per {axis}")


@validated
def snaps(dataset: xr.Dataset) -> xr.Dataset:
    """When each pattern of attention slowed, and whether it stayed there.

    There is one pattern for each layer and head, and in a synthetic run for each class.  The rate of a pattern is the
    share of attention that moves between two records per step.  `snap_step` is the step after which the rate never
    again exceeds a tenth of its peak, `peak_rate`: over at least three records, which cover at least a fifth of the
    steps.  It is NaN where there is none, or where less than 5% of attention moved in all.  `late_share` is the largest
    rate over the last fifth of the steps as a share of the peak.

    `moved_until` and `moved_since` are the shares of attention that moved from the first record to the snap, and from
    there: the largest distances on the way.  Small rates add up, so `snap_status` is `frozen` only where
    `moved_since` is at most a fifth of `moved_until`, and `slowed` where it is more.  A result that recorded only how
    much moves, and not where to (text, watched models), has NaN for both, and the rate decides alone.  The other
    statuses are `not yet`, `hardly moved` and `too short`; `evidence` gives the numbers in a sentence.

    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(ss.measure.snaps(run)["snap_status"].values.squeeze())
    ['frozen' 'frozen']
    """
    axis = record_dimension(dataset)
    if "moved" in dataset:
        moved, attention = dataset["moved"], None
    else:
        moved, attention = rate_of_change(dataset) * dataset[axis].diff(axis), _attention(dataset)
    ordered = moved.reindex({axis: dataset[axis]}).transpose(..., axis)
    rows = ordered.values.reshape(-1, ordered.sizes[axis])
    patterns = None if attention is None else attention.transpose(*ordered.dims, "token").values
    each = [None] * len(rows) if patterns is None else patterns.reshape(*rows.shape, -1)
    verdicts = [find_snap(dataset[axis].values, *both) for both in zip(rows, each, strict=True)]
    first = ordered.isel({axis: 0}, drop=True)
    columns = {
        "snap_step": np.array([np.nan if snap.step is None else snap.step for snap in verdicts], np.float64),
        "snap_status": np.array([snap.status for snap in verdicts]),
        "peak_rate": np.array([snap.peak_rate for snap in verdicts]),
        "late_share": np.array([late_share(dataset[axis].values, row) for row in rows]),
        "moved_until": np.array([snap.until for snap in verdicts]),
        "moved_since": np.array([snap.since for snap in verdicts]),
        "evidence": np.array([str(snap) for snap in verdicts]),
    }
    shaped = {name: (first.dims, values.reshape(first.shape)) for name, values in columns.items()}
    return xr.Dataset(shaped, coords=first.coords)


@validated
def record_dimension(dataset: xr.Dataset) -> str:
    """`step` for trained runs, `time` for flows.

    >>> run = ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9)
    >>> print(ss.measure.record_dimension(run))
    step
    """
    for name in ("step", "time"):
        if name in dataset.dims:
            return name
    raise InputError("this dataset has neither a 'step' nor a 'time' dimension: give a result of train or flow.")


def _classes(dataset: xr.Dataset) -> tuple[SequenceClasses, NDArray[np.float64]]:
    """The classes of a result, and P(l|n) of their contextual tokens (K x S)."""
    content = json.loads(dataset.attrs.get("classes", "{}"))
    settings = [content] if "vocab_size" in content else list(content.values())  # those of a sweep have names
    if len(settings) != 1 or not {"class", "token"} <= set(dataset.coords):
        raise InputError("this result does not name its classes and tokens: give one that recorded attention.")
    classes = classes_from_mapping(settings[0])
    probs = np.zeros((classes.num_classes, len(classes.contextual_tokens)))
    of_entry = np.repeat(np.arange(classes.num_classes), np.diff(classes.offsets))
    probs[of_entry, np.searchsorted(classes.contextual_tokens, classes.tokens)] = classes.token_probs
    return classes, probs


def _of_classes(dataset: xr.Dataset, classes: SequenceClasses, values: NDArray[np.generic], name: str) -> xr.DataArray:
    """Values of classes and contextual tokens (K x S) for the classes and tokens of a result."""
    coords = {"class": np.arange(classes.num_classes), "token": classes.contextual_tokens}
    labeled = xr.DataArray(values, dims=("class", "token"), coords=coords, name=name)
    return labeled.sel({"class": dataset["class"], "token": dataset["token"]})


def _attention(dataset: xr.Dataset) -> xr.DataArray:
    if "attention" not in dataset:
        raise InputError("this result did not record 'attention': run it again with 'attention' in record.")
    return dataset["attention"].astype(np.float64)


def _entropy(weights: xr.DataArray, label: str) -> xr.DataArray:
    values = xr.apply_ufunc(entropy_of, weights, input_core_dims=[["token"]])
    return _labeled(values, "entropy", label, "nats")


def _labeled(values: xr.DataArray, name: str, label: str, units: str = "") -> xr.DataArray:
    values.attrs = {"long_name": label, "units": units}
    return values.rename(name)
