"""Models trained on a text to see which tokens win their attention: (Y, Z), regular ones, and the ladder between.

Every model reads the same windows at the same batch size.  What is kept of a run is the change of its attention logits
between queries and tokens, as ranks within a query, since only these are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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

PASSES = 2
WIDTH = 64

_TOP = Rung(width=WIDTH, attention="factored", norm="layer", residual=True, feed_forward=True, positions=True)
_SLOW = replace(_TOP, lr_y=5.0)
CLIMB: dict[str, Rung] = {
    "embeddings": Rung(width=WIDTH),
    "one matrix W": Rung(width=WIDTH, attention="bilinear"),
    "W_Q and W_K": Rung(width=WIDTH, attention="factored"),
    "LayerNorm": Rung(width=WIDTH, attention="factored", norm="layer"),
    "residual": replace(_TOP, feed_forward=False, positions=False),
    "feed-forward": replace(_TOP, positions=False),
    "positions": _TOP,
    "rate 5": _SLOW,
    "clipping": replace(_SLOW, clip=0.5),
    "one rate": replace(_SLOW, clip=0.5, shared=1.0),
    "dropout": replace(_SLOW, clip=0.5, shared=1.0, dropout=0.2),
}
"""From (Y, Z) to the published model: each rung has what the one before it has, and one thing more."""

YZ, REGULAR, LADDER = "yz", "regular", "ladder"
GROUPS = (YZ, REGULAR, LADDER)


@dataclass(frozen=True)
class Trial:
    """A model and its learning rates, to be trained from several seeds."""

    group: str
    model: str
    ratio: float
    """eta_Y / eta_Z."""
    train: Callable[[int, Tensor, Tensor], Tensor]
    """Of a seed, queries and tokens: the change of the logits between them (Q, K)."""


def run_trials(
    corpus: Any,
    queries: NDArray[np.int64],
    tokens: NDArray[np.int64],
    *,
    groups: Sequence[str] = GROUPS,
    num_seeds: int,
    folder: Path,
) -> xr.DataArray:
    """Ranks (trial, seed, query, token) of the change, from 1 for the least, or 0 where a run diverged.

    Runs are stored in `folder`; those that are there are read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    between = torch.tensor(queries), torch.tensor(tokens)
    done = [trial for group in groups for trial in trials(corpus, group)]
    ranks = [[_run(trial, seed, between, folder) for trial in done] for seed in range(num_seeds)]
    return xr.DataArray(
        np.array(ranks),
        dims=("seed", "trial", "query", "token"),
        coords={
            **{name: ("trial", [getattr(trial, name) for trial in done]) for name in ("group", "model", "ratio")},
            "seed": np.arange(num_seeds),
            "query": queries,
            "token": tokens,
        },
    ).transpose("trial", "seed", ...)


def trials(corpus: Any, group: str) -> Iterator[Trial]:
    """The trials of a group."""
    window = ss.YZTextOptions.window
    if group == YZ:
        for ratio in RATIOS:

            def start() -> Any:
                return ss.text_training(corpus, ss.YZTextOptions(queries=0, patterns=0)).model

            yield Trial(group, "(Y, Z)", ratio, _in_passes(corpus, start, ss.YZTextOptions.lr_y, ratio))
    elif group == REGULAR:
        for positions, name in (("none", "published, no positions"), ("sinusoidal", "published")):
            yield Trial(group, name, RATIO, _regular(corpus, positions, RATIO))
    elif group == LADDER:
        for name, rung in CLIMB.items():

            def make(rung: Rung = rung) -> LadderModel:
                return LadderModel(rung, vocab_size=corpus.vocab_size, window=window)

            yield Trial(group, name, RATIO, _in_passes(corpus, make, rung.lr_y, RATIO))
    else:
        raise ValueError(f"unknown group of trials {group}: choose one of {', '.join(GROUPS)}")


def every_window(tokens: NDArray[np.integer], window: int) -> NDArray[np.int64]:
    """The text as windows (N, window + 1) that overlap by one token."""
    count = (len(tokens) - 1) // window
    return np.lib.stride_tricks.sliding_window_view(tokens, window + 1)[: count * window : window].astype(np.int64)


def train_in_passes(
    model: Any, windows: Tensor, *, batch_size: int, passes: int, seed: int, lr_y: float, lr_z: float
) -> None:
    """Train on windows (N, T + 1), `passes` times, each in an order that the seed draws.

    (Y, Z) starts from zero, so the order of its windows is all that can differ between two runs.
    """
    rng = np.random.default_rng(seed)
    for _ in range(passes):
        order = torch.from_numpy(rng.permutation(len(windows)))
        for chosen in order[: len(order) // batch_size * batch_size].split(batch_size):
            batch = windows[chosen]
            model.step(batch[:, :-1], batch[:, 1:], lr_y=lr_y, lr_z=lr_z)


def _in_passes(
    corpus: Any, make: Callable[[], Any], lr_y: float, ratio: float
) -> Callable[[int, Tensor, Tensor], Tensor]:
    """Plain SGD in an order of windows that the seed draws."""

    def train(seed: int, queries: Tensor, tokens: Tensor) -> Tensor:
        windows = torch.from_numpy(every_window(corpus.train, ss.YZTextOptions.window))
        torch.manual_seed(seed)
        model = make()
        before = model.logits_between(queries, tokens)[0].clone()
        batch_size = ss.YZTextOptions.batch_size
        train_in_passes(model, windows, batch_size=batch_size, passes=PASSES, seed=seed, lr_y=lr_y, lr_z=lr_y / ratio)
        return model.logits_between(queries, tokens)[0] - before

    return train


def _regular(corpus: Any, positions: str, ratio: float) -> Callable[[int, Tensor, Tensor], Tensor]:
    """`train_text` of the published model in this width, with clipping and dropout, at its own rate."""
    window, batch_size = ss.YZTextOptions.window, ss.YZTextOptions.batch_size
    steps = PASSES * updates_per_pass(corpus, batch_size=batch_size, window=window)

    def train(seed: int, queries: Tensor, tokens: Tensor) -> Tensor:
        options = ss.TextOptions(
            positions=positions,  # type: ignore[arg-type]
            width=WIDTH,
            feed_forward=WIDTH,
            lr_z=ss.TextOptions.lr_y / ratio,
            window=window,
            batch_size=batch_size,
            steps=steps,
            record_every=steps,
            patterns=0,
            seed=seed,
        )
        training = ss.text_training(corpus, options)
        before = training.model.logits_between(queries, tokens).mean(0)
        training.run(progress=False)
        return training.model.logits_between(queries, tokens).mean(0) - before

    return train


def _run(trial: Trial, seed: int, between: tuple[Tensor, Tensor], folder: Path) -> NDArray[np.uint16]:
    path = folder / f"{trial.group}-{trial.model.replace(' ', '_')}-{trial.ratio:g}-{seed}.npy"
    if not path.exists():
        change = trial.train(seed, *between)
        ranks = torch.zeros_like(change, dtype=torch.int64)
        if torch.isfinite(change).all():
            ranks = change.argsort(1).argsort(1) + 1
        np.save(path, ranks.numpy().astype(np.uint16))
        print(path.stem, flush=True)
    return np.load(path)
