"""Models trained on a text to see which tokens win their attention: (Y, Z), regular ones, and the ladder between.

Every model reads the same windows at the same batch size.  What is kept of a run is the change of its attention logits
between queries and tokens, as ranks within a query, since only these are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

import scansnap as ss
from common import updates_per_pass
from ladder import LadderModel, Rung

RATIOS = (1.0, 10.0, 100.0)
RATIO = 10.0
"""That of the ladder."""

_AT_TOP: dict[str, Any] = {"attention": "factored", "norm": "layer", "residual": True, "feed_forward": True}
CLIMB: dict[str, Rung] = {
    "width 1000": Rung(width=1000),
    "width 200": Rung(),
    "width 50": Rung(width=50),
    "one matrix W": Rung(attention="bilinear"),
    "W_Q and W_K": Rung(attention="factored"),
    "LayerNorm": Rung(attention="factored", norm="layer"),
    "residual": Rung(attention="factored", norm="layer", residual=True),
    "feed-forward": Rung(**_AT_TOP),
    "positions": Rung(**_AT_TOP, positions=True),
}
"""From (Y, Z) to regular: after the widths, each rung has what the one before it has, and one thing more."""

ALONE: dict[str, Rung] = {
    "LayerNorm alone": Rung(norm="layer"),
    "residual alone": Rung(residual=True),
    "feed-forward alone": Rung(residual=True, feed_forward=True),
    "positions alone": Rung(positions=True),
}
"""One change to width 200 with Z itself; the feed-forward part has the residual connection that it is added to."""

LAST = 100
"""The loss of a trial is the mean over this many last updates."""

YZ, REGULAR, LADDER = "yz", "regular", "ladder"
GROUPS = (YZ, REGULAR, LADDER)


@dataclass(frozen=True)
class Trial:
    """A model and its learning rates, to be trained from several seeds."""

    group: str
    model: str
    ratio: float
    """eta_Y / eta_Z."""
    train: Callable[[int, Tensor, Tensor], tuple[Tensor, float]]
    """Of a seed, queries and tokens: the change of the logits between them (Q, K), and the loss at the end."""


def run_trials(
    corpus: Any,
    queries: NDArray[np.int64],
    tokens: NDArray[np.int64],
    *,
    groups: Sequence[str] = GROUPS,
    num_seeds: int,
    passes: int,
    device: str = "cpu",
    say: Callable[[str], None] = lambda words: None,
) -> xr.Dataset:
    """`change` (trial, seed, query, token): ranks from 1, the least, or 0 where a run diverged; `loss`, `seconds`."""
    between = tuple(torch.tensor(ids, device=device) for ids in (queries, tokens))
    done: list[Trial] = []
    results = []
    for group in groups:
        for trial in trials(corpus, group, passes=passes, device=device):
            done.append(trial)
            results.append([_run(trial, seed, *between) for seed in range(num_seeds)])
            words = ", ".join(f"{loss:.3f} in {seconds:.1f} s" for _, loss, seconds in results[-1])
            say(f"{group}: {trial.model}, ratio {trial.ratio:g}: loss {words}")
    change, loss, seconds = (np.array([[run[i] for run in runs] for runs in results]) for i in range(3))
    return xr.Dataset(
        {
            "change": (("trial", "seed", "query", "token"), change),
            "loss": (("trial", "seed"), loss),
            "seconds": (("trial", "seed"), seconds),
        },
        coords={
            **{name: ("trial", [getattr(trial, name) for trial in done]) for name in ("group", "model", "ratio")},
            "seed": np.arange(num_seeds),
            "query": queries,
            "token": tokens,
        },
        attrs={"passes": passes, "corpus": corpus.name},
    )


def trials(corpus: Any, group: str, *, passes: int, device: str) -> Iterator[Trial]:
    """The trials of a group."""
    if group == YZ:
        options = ss.YZTextOptions(queries=0, patterns=0, device=device)  # type: ignore[arg-type]
        for ratio in RATIOS:

            def start() -> Any:
                return ss.text_training(corpus, options).model

            yield Trial(group, "(Y, Z)", ratio, _in_passes(corpus, start, ratio, passes, device))
    elif group == REGULAR:
        for layers in (1, 3):
            for positions in ("none", "sinusoidal"):
                name = f"{layers} layer{'s' * (layers > 1)}, {'no ' * (positions == 'none')}positions"
                for ratio in RATIOS:
                    yield Trial(group, name, ratio, _regular(corpus, layers, positions, ratio, passes, device))
    elif group == LADDER:
        window = ss.YZTextOptions.window
        for name, rung in {**CLIMB, **ALONE}.items():

            def make(rung: Rung = rung) -> LadderModel:
                return LadderModel(rung, vocab_size=corpus.vocab_size, window=window)

            yield Trial(group, name, RATIO, _in_passes(corpus, make, RATIO, passes, device))
    else:
        raise ValueError(f"unknown group of trials {group}: choose one of {', '.join(GROUPS)}")


def every_window(tokens: NDArray[np.integer], window: int) -> NDArray[np.int64]:
    """The text as windows (N, window + 1) that overlap by one token."""
    count = (len(tokens) - 1) // window
    return np.lib.stride_tricks.sliding_window_view(tokens, window + 1)[: count * window : window].astype(np.int64)


def train_in_passes(
    model: Any, windows: Tensor, *, batch_size: int, passes: int, seed: int, lr_y: float, lr_z: float
) -> float:
    """Train on windows (N, T + 1), `passes` times, each in an order that the seed draws; the loss of the last updates.

    (Y, Z) starts from zero, so the order of its windows is all that can differ between two runs.
    """
    rng = np.random.default_rng(seed)
    losses: list[Tensor] = []
    for _ in range(passes):
        order = torch.from_numpy(rng.permutation(len(windows))).to(windows.device)
        for chosen in order[: len(order) // batch_size * batch_size].split(batch_size):
            batch = windows[chosen]
            losses.append(model.step(batch[:, :-1], batch[:, 1:], lr_y=lr_y, lr_z=lr_z))
    return float(torch.stack(losses[-LAST:]).double().mean())


def _in_passes(
    corpus: Any, make: Callable[[], Any], ratio: float, passes: int, device: str
) -> Callable[[int, Tensor, Tensor], tuple[Tensor, float]]:
    """Plain SGD at the rates of (Y, Z), in an order of windows that the seed draws."""
    yz = ss.YZTextOptions()

    def train(seed: int, queries: Tensor, tokens: Tensor) -> tuple[Tensor, float]:
        windows = torch.from_numpy(every_window(corpus.train, yz.window)).to(device)
        torch.manual_seed(seed)
        with torch.device(device):
            model = make()
        before = model.logits_between(queries, tokens)[0].clone()
        loss = train_in_passes(
            model, windows, batch_size=yz.batch_size, passes=passes, seed=seed, lr_y=yz.lr_y, lr_z=yz.lr_y / ratio
        )
        return model.logits_between(queries, tokens)[0] - before, loss

    return train


def _regular(
    corpus: Any, layers: int, positions: str, ratio: float, passes: int, device: str
) -> Callable[[int, Tensor, Tensor], tuple[Tensor, float]]:
    """`train_text` of the published model, with clipping and dropout, at its own rate; logits are means over heads."""
    window, batch_size = ss.YZTextOptions.window, ss.YZTextOptions.batch_size
    steps = passes * updates_per_pass(corpus, batch_size=batch_size, window=window)

    def train(seed: int, queries: Tensor, tokens: Tensor) -> tuple[Tensor, float]:
        options = ss.TextOptions(
            layers=layers,
            positions=positions,  # type: ignore[arg-type]
            lr_z=ss.TextOptions.lr_y / ratio,
            window=window,
            batch_size=batch_size,
            steps=steps,
            record_every=steps,
            patterns=0,
            seed=seed,
            device=device,  # type: ignore[arg-type]
        )
        training = ss.text_training(corpus, options)
        before = training.model.logits_between(queries, tokens).mean(0)
        records = training.run(progress=False)
        change = training.model.logits_between(queries, tokens).mean(0) - before
        return change, float(records["loss"].values[0, -1])

    return train


def _run(trial: Trial, seed: int, queries: Tensor, tokens: Tensor) -> tuple[NDArray[np.uint16], float, float]:
    began = time.perf_counter()
    change, loss = trial.train(seed, queries, tokens)
    ranks = torch.zeros_like(change, dtype=torch.int64)
    if torch.isfinite(change).all():
        ranks = change.argsort(1).argsort(1) + 1
    return ranks.cpu().numpy().astype(np.uint16), loss, time.perf_counter() - began
