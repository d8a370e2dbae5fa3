"""When a distinct token's attention logit falls, against Theorem 2, in random settings under true SGD.

python studies/falls.py drawn        the twelve settings of tests/theory/test_reduced_dynamics.py, eta_Y/eta_Z = 1000
python studies/falls.py assumed      1,000 random settings that meet Assumption 2 at eta_Y/eta_Z = 1000, and 200 at 100
python studies/falls.py symmetric    1,200 random symmetric classes at eta_Y/eta_Z from 1 to 10

A fall is a time at which dz/dt < 0.  For a token of one class its sign is that of the token's drive xi_nl, which is
computed from the states of `ss.flow` by Lemma 1; the first change of sign is bracketed on a grid of six times a decade
and refined.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.special import softmax

import scansnap as ss

LR_Y = 0.5


def least_drive(classes: ss.SequenceClasses, times: np.ndarray, *, ratio: float) -> np.ndarray:
    """The least drive xi_nl of a distinct token at each time along a flow of true SGD."""
    run = ss.flow(
        classes, lr_y=LR_Y, lr_z=LR_Y / ratio, times=times, record=("attention_logits", "decoder"), progress=False
    )
    run = ss.measure.one_head(run).isel(run=0)
    probs = classes.probs[:, classes.contextual_tokens]
    own = (probs > 0) & ((probs > 0).sum(axis=0) == 1)
    count = classes.num_classes
    columns = np.append(
        classes.next_token, 0
    )  # tokens that are never next have equal columns: the first stands for all
    copies = np.append(np.ones(count), classes.vocab_size - count)
    own_next = np.arange(count), np.arange(count)
    least = []
    for i in range(len(times)):
        f = ss.theory.directions(probs, run["attention_logits"].values[i, 0])
        y = run["decoder"].values[i][:, columns]
        residual = -softmax(f @ y + np.log(copies), axis=1)
        residual[own_next] = 0.0
        residual[own_next] = -residual.sum(axis=1)  # 1 - alpha_n as the sum of the others, precise late in training
        g = residual @ y.T
        with np.errstate(divide="ignore", invalid="ignore"):
            least.append((g / f - (f * g).sum(axis=1, keepdims=True))[own].min())
    return np.array(least)


def first_fall(classes: ss.SequenceClasses, *, ratio: float, until: float) -> float:
    """When a distinct token first falls, to 0.1%; infinite if none does by `until`."""
    times = np.geomspace(1, until, int(6 * np.log10(until)) + 1)
    while True:
        least = least_drive(classes, times, ratio=ratio)
        if not (least < 0).any():
            return np.inf
        i = int(np.argmax(least < 0))
        if i == 0 or times[i] / times[i - 1] < 1.001:
            return float(times[i])
        times = np.geomspace(times[i - 1], times[i], 12)


def one_query(probs: np.ndarray, vocab_size: int) -> ss.SequenceClasses:
    """Classes of one query whose first token is common and whose other tokens (columns) are distinct."""
    count, width = probs.shape
    return ss.SequenceClasses.from_supports(
        tokens=[[0, *range(1 + n * (width - 1), 1 + (n + 1) * (width - 1))] for n in range(count)],
        probs=list(probs),
        query=[vocab_size - 1] * count,
        next_token=list(range(vocab_size - 2, vocab_size - 2 - count, -1)),
        vocab_size=vocab_size,
    )


def drawn() -> None:
    """The twelve settings of the tests."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        count, distinct = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        probs = np.maximum(rng.dirichlet(np.full(distinct + 1, 0.6), size=count), 0.02)
        classes = one_query(probs / probs.sum(axis=1, keepdims=True), 2000)
        weak = ss.theory.assumptions(classes, lr_y=LR_Y, lr_z=LR_Y / 1000)["weak_overlap"]
        fall = first_fall(classes, ratio=1000, until=1e10)
        print(f"seed {seed}: K = {count}, |lambda_1| K = {weak.value * count:.2f}, first fall {fall:.3g}", flush=True)


def assumed(vocab_size: int = 20_000, until: float = 1e9) -> None:
    """Random settings of three to five classes within Assumption 2, the same ones at both ratios."""
    for ratio, wanted in ((1000, 1000), (100, 200)):
        rng = np.random.default_rng(1)
        falls = []
        while len(falls) < wanted:
            count, distinct = int(rng.integers(3, 6)), int(rng.integers(1, 4))
            probs = np.maximum(rng.dirichlet(np.full(distinct + 1, 0.6), size=count), 0.02)
            classes = one_query(probs / probs.sum(axis=1, keepdims=True), vocab_size)
            met = ss.theory.assumptions(classes, lr_y=LR_Y, lr_z=LR_Y / ratio)
            if met["weak_overlap"].met and met["no_vanishing_overlap"].met:
                falls.append(first_fall(classes, ratio=ratio, until=until))
                print(ratio, len(falls), falls[-1], file=sys.stderr, flush=True)
        times = np.sort(falls)
        print(f"ratio {ratio}: {np.isfinite(times).sum()} of {wanted} fall by {until:g}: {times[:20]}", flush=True)


def symmetric(wanted: int = 1200, until: float = 1e8) -> None:
    """Random symmetric classes of one query whose common token has more than half of the probability."""
    rng = np.random.default_rng(2)
    falls, overlaps = [], []
    times = np.geomspace(1, until, 81)
    for _ in range(wanted):
        count, distinct, size = int(rng.integers(2, 7)), int(rng.integers(2, 5)), int(10 ** rng.uniform(1.6, 3.6))
        ratio, common = 10 ** rng.uniform(0, 1), rng.uniform(0.5, 0.9)
        probs = np.append(common, (1 - common) * rng.dirichlet(np.full(distinct, 0.6)).clip(0.02))
        probs /= probs.sum()
        sizes = {"num_classes": count, "vocab_size": size, "lr_y": LR_Y, "lr_z": LR_Y / ratio}
        flow = ss.theory.symmetric_flow(times, distinct_probs=probs[1:], common_probs=probs[:1], **sizes)
        overlaps.append(probs[0] ** 2 / (probs**2).sum())
        if (flow.distinct_drive < 0).any():
            falls.append((round(overlaps[-1], 3), count, size, round(ratio, 2), probs.round(4).tolist()))
    print(f"{len(falls)} of {wanted} symmetric settings, overlaps from {min(overlaps):.2f}, fall by {until:g}")
    for fall in sorted(falls):
        print(*fall)


if __name__ == "__main__":
    {"drawn": drawn, "assumed": assumed, "symmetric": symmetric}[sys.argv[1]]()
