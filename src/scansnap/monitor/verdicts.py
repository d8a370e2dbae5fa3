"""Verdicts on the heads of a model: what the snapshots show of each, by the rules of `verdict_rules`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import get_args

import numpy as np
import xarray as xr

from scansnap.monitor.dataset import HEAD_DIMS, LEARNING_RATE, head_variables, split_missing
from scansnap.monitor.verdict_rules import (
    COLLAPSE_SHARE,
    HEAD_VERDICTS,
    HeadHistory,
    Judgment,
    Severity,
    VerdictRule,
    rescale_weight,
)
from scansnap.runtime.errors import InputError, brief, short_repr
from scansnap.validation.validate import validated


@dataclass(frozen=True)
class HeadVerdict:
    """A verdict on one head.

    >>> print(ss.HeadVerdict("sink", "notice", 0, 1, "attention", 50, "the first token has 90%"))
    notice: layer 0, head 1 (attention) is sink since step 50: the first token has 90%
    """

    name: str
    severity: Severity
    layer: int
    head: int
    module: str
    since: int
    evidence: str
    episodes: tuple[tuple[int, int | None], ...] = ()  # the steps at which each began and ended; None if it holds

    def __str__(self) -> str:
        where = f"layer {self.layer}, head {self.head}" + (f" ({self.module})" if self.module else "")
        return f"{self.severity}: {where} is {self.name} since step {self.since:,}: {self.evidence}"


@validated
def judge_heads(dataset: xr.Dataset, kinds: Iterable[str] | None = None) -> list[HeadVerdict]:
    """Every verdict that holds at the last snapshot, most severe first.

    `dataset` has the snapshots of a watch; `kinds` selects verdicts by name.  A verdict that needs a quantity that
    cannot be measured on a head is not given; one that needs a quantity that was not recorded is refused if it is
    named, and otherwise not given.

    >>> import torch
    >>> model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    >>> watch = ss.watch(model, probe=torch.randn(2, 12, 16), every=1)
    >>> watch.step()
    >>> ss.judge_heads(watch.dataset)
    []
    """
    if not set(HEAD_DIMS) <= set(dataset.dims):
        raise InputError(
            f"the dataset has the dimensions {', '.join(map(str, dataset.dims))}: give snapshots of a watch."
        )
    names = tuple(HEAD_VERDICTS if kinds is None else kinds)
    rules = {name: HEAD_VERDICTS.member(name) for name in names}
    unjudged = {} if kinds is None else unjudged_verdicts(dataset)
    for name in set(names) & set(unjudged):
        raise InputError(f"the verdict '{name}' needs {', '.join(unjudged[name])}: record them too.")
    verdicts = [
        HeadVerdict(name, rules[name].severity, head.layer, head.head, head.module, **vars(judgment))
        for name, head, judgment in _judge_each(dataset, rules)
        if judgment is not None
    ]
    severities = list(get_args(Severity))
    return sorted(verdicts, key=lambda v: (severities.index(v.severity), names.index(v.name), v.layer, v.head))


@dataclass(frozen=True)
class LayerVerdict:
    """A verdict on some heads of one layer."""

    heads: tuple[HeadVerdict, ...]
    of: int  # heads that the layer has

    @property
    def size(self) -> int:
        """The number of heads."""
        return len(self.heads)

    @property
    def where(self) -> str:
        """Which heads."""
        layer, count = f"layer {self.heads[0].layer}", self.size
        if count == 1:
            return f"{layer}, head {self.heads[0].head}"
        if count == self.of:
            return f"{layer}, {'both' if count == 2 else f'all {count}'} heads"
        return (
            f"{layer}, heads {', '.join(str(v.head) for v in self.heads)}" if count < 4 else f"{layer}, {count} heads"
        )

    @property
    def since(self) -> str:
        """The steps since which it holds: those of the first and of the last head."""
        steps = sorted({verdict.since for verdict in self.heads})
        return " to ".join(f"{step:,}" for step in dict.fromkeys((steps[0], steps[-1])))

    @property
    def evidence(self) -> str:
        """The evidence for the head of which it holds the longest, which is named if that for others differs."""
        first = min(self.heads, key=lambda verdict: verdict.since)
        is_of_all = all(verdict.evidence == first.evidence for verdict in self.heads)
        return first.evidence if is_of_all else f"head {first.head}: {first.evidence}"


def by_kind(dataset: xr.Dataset) -> dict[str, list[LayerVerdict]]:
    """The verdicts by name, most pressing first, those of one layer together."""
    kinds: dict[str, list[LayerVerdict]] = {}
    sizes = _heads_of_layers(dataset)
    for (name, layer), heads in groupby(judge_heads(dataset), lambda verdict: (verdict.name, verdict.layer)):
        kinds.setdefault(name, []).append(LayerVerdict(tuple(heads), sizes[layer]))
    return kinds


def _heads_of_layers(dataset: xr.Dataset) -> dict[int, int]:
    """How many heads each layer has: a layer with fewer than others has no numbers for the rest, at any step."""
    has_numbers = [np.isfinite(values.values).any(0) for values in head_variables(dataset).values()]
    return dict(zip(dataset["layer"].values.tolist(), np.any(has_numbers, 0).sum(1).tolist(), strict=True))


def in_words(kinds: Mapping[str, Sequence[LayerVerdict]]) -> str:
    """How many heads each verdict holds of."""
    counts = {name: sum(layer.size for layer in layers) for name, layers in kinds.items()}
    return "; ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def headline(dataset: xr.Dataset, kinds: Mapping[str, Sequence[LayerVerdict]]) -> str:
    """How many heads have an alarm, and how many attend to a single key, whatever verdict names it."""
    verdicts = [verdict for layers in kinds.values() for layer in layers for verdict in layer.heads]
    alarmed = {(verdict.layer, verdict.head) for verdict in verdicts if verdict.severity == "alarm"}
    heads = sum(_heads_of_layers(dataset).values())
    words = f"heads with an alarm: {len(alarmed)} of {heads}"
    last = split_missing(dataset)[0].isel(step=slice(-1, None))
    if {"top_1", "even_weight"} <= set(last):
        sharp = rescale_weight(last["top_1"].values, last["even_weight"].values) >= COLLAPSE_SHARE
        words += f"; heads on a single key: {sharp.sum()} of {heads}"
    return words


def count_verdicts(dataset: xr.Dataset) -> dict[str, int]:
    """Of how many heads each verdict holds, for the verdicts that can be judged at the last snapshot."""
    counts: dict[str, int] = {}
    for name, _, judgment in _judge_each(dataset, {name: HEAD_VERDICTS.member(name) for name in HEAD_VERDICTS}):
        counts[name] = counts.get(name, 0) + (judgment is not None)
    return counts


def unjudged_verdicts(dataset: xr.Dataset) -> dict[str, list[str]]:
    """The verdicts that cannot be judged from the snapshots, and the quantities that were not recorded for them."""
    needs = {name: [q for q in HEAD_VERDICTS.member(name).needs if q not in dataset] for name in HEAD_VERDICTS}
    return {name: quantities for name, quantities in needs.items() if quantities}


def _judge_each(
    dataset: xr.Dataset, rules: Mapping[str, VerdictRule]
) -> Iterator[tuple[str, HeadHistory, Judgment | None]]:
    """The judgment of each rule on each head that has the quantities for it."""
    for history in _histories(dataset):
        for name, rule in rules.items():
            if not set(rule.needs) <= set(history.values):
                continue
            try:
                judgment = rule.judge(history)
            except Exception as error:
                raise InputError(
                    f"the verdict '{name}' fails on layer {history.layer}, head {history.head} "
                    f"({type(error).__name__}: {brief(error)}): mend its function."
                ) from error
            if not isinstance(judgment, Judgment | None):
                raise InputError(
                    f"the verdict '{name}' gives {short_repr(judgment)}: return what head.as_long_as(...) "
                    "gives, or None."
                )
            yield name, history, judgment


def _histories(dataset: xr.Dataset) -> Iterator[HeadHistory]:
    """The history of each head, with the quantities that could be measured at the last snapshot."""
    snapshots, _ = split_missing(dataset)
    if not snapshots.sizes["step"]:
        return
    values = {name: quantity.values for name, quantity in head_variables(snapshots).items()}
    rate = snapshots[LEARNING_RATE].values if LEARNING_RATE in snapshots else np.zeros(0)
    known = {LEARNING_RATE: rate} if np.isfinite(rate).any() else {}
    for i, layer in enumerate(snapshots["layer"].values.tolist()):
        module = str(snapshots["module"].values[i]) if "module" in snapshots.coords else ""
        for j, head in enumerate(snapshots["head"].values.tolist()):
            measured = {name: v[:, i, j] for name, v in values.items() if np.isfinite(v[-1, i, j])}
            if measured:
                yield HeadHistory(layer, head, module, snapshots["step"].values, measured | known)
