"""Heads that are made to do one thing are named for it: 108 of them, each with its own key, strength and noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import scansnap as ss
from tests.monitor.given_attention import GivenAttention

LENGTH, WINDOWS, SNAPSHOTS, EACH = 32, 3, 12, 12
SEPARATOR = 7
KINDS = {
    "sink": "sink",
    "previous token": "previous-token",
    "k tokens back": "fixed-offset",
    "itself": "current-token",
    "one token, [SEP]": "one-token",
    "one position": "one-position",
    "uniform": "uniform",
    "collapse": "collapsed",
    "freeze": "frozen",
}
"""What heads are made to do, and the verdict that says so."""


def make_probe(rng: np.random.Generator) -> Tensor:
    """Windows of random tokens; each has a separator at two places of its own."""
    ids = rng.integers(10, 90, (WINDOWS, LENGTH))
    for window in ids:
        window[rng.choice(np.arange(1, 4), 1)] = SEPARATOR
        window[rng.choice(np.arange(8, 16), 1)] = SEPARATOR
    return torch.from_numpy(ids)


class Head:
    """One head: which keys its rows attend to, how sharply, and how that changes from snapshot to snapshot."""

    def __init__(self, kind: str, ids: Tensor, rng: np.random.Generator) -> None:
        self.kind, self._rng = kind, rng
        rows = np.arange(LENGTH)
        keys = np.zeros((WINDOWS, LENGTH, LENGTH))
        if kind in ("previous token", "k tokens back", "itself"):
            back = {"previous token": 1, "itself": 0}.get(kind, int(rng.integers(2, 9)))
            keys[:, rows[back:], rows[back:] - back] = 1
        elif kind in ("sink", "one position"):
            keys[:, :, 0 if kind == "sink" else int(rng.integers(4, 8))] = 1
        elif kind == "one token, [SEP]":
            keys[:] = (ids == SEPARATOR).numpy()[:, None]
        elif kind == "collapse":
            for window in keys:
                window[rows, rng.integers(0, rows + 1)] = 1
        self._keys, self._gap = keys, 12.0 if kind == "collapse" else rng.uniform(4.5, 7.0)
        self._start, self._end = rng.normal(size=(2, WINDOWS, LENGTH, LENGTH))

    def logits(self, snapshot: int) -> np.ndarray:
        noise = self._rng.normal(size=self._start.shape)
        if self.kind == "uniform":
            return 0.05 * noise
        if self.kind == "freeze":  # moves over five snapshots, and then no more
            share = min(1.0, snapshot / 5)
            return 2.0 * ((1 - share) * self._start + share * self._end)
        return self._gap * self._keys + 0.4 * noise


def confusion(seed: int) -> dict[str, dict[str, int]]:
    """How many heads of each kind have which verdict, but for those that say how sharp a head is."""
    rng = np.random.default_rng(seed)
    ids = make_probe(rng)
    heads = [Head(kind, ids, rng) for kind in KINDS for _ in range(EACH)]
    model = GivenAttention()
    later = torch.ones(LENGTH, LENGTH).triu(1).bool()

    def show(snapshot: int) -> None:
        logits = torch.from_numpy(np.stack([head.logits(snapshot) for head in heads], 1)).float()
        model.logits = logits.masked_fill(later, -torch.inf)

    show(0)
    watch = ss.watch(model, probe=ids, every=1, rows=None, errors="raise")
    for snapshot in range(1, SNAPSHOTS):
        show(snapshot)
        watch.step()
    table = {kind: dict.fromkeys([*KINDS.values(), "nothing"], 0) for kind in KINDS}
    verdicts = watch.verdicts
    for number, head in enumerate(heads):
        names = {v.name for v in verdicts if v.head == number} & set(KINDS.values())
        for name in names or {"nothing"}:
            table[head.kind][name] += 1
    return table


@pytest.mark.parametrize("seed", range(2))
def test_each_head_is_named_for_what_it_does(seed: int) -> None:
    """And for nothing else; the table in the documentation is that of the first seed."""
    table = confusion(seed)
    for kind, counts in table.items():
        assert counts == {name: EACH * (name == KINDS[kind]) for name in counts}, kind
    if seed == 0:
        names = list(table["sink"])
        lines = [f"| {kind} | {' | '.join(str(counts[name]) for name in names)} |" for kind, counts in table.items()]
        page = (Path(__file__).parents[2] / "docs" / "reference" / "watching.md").read_text()
        assert "\n".join([f"| made to | {' | '.join(names)} |", "|" + " --- |" * (len(names) + 1), *lines]) in page
