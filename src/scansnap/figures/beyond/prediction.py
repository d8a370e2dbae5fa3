"""Beyond the paper: can the winners of attention on text be said before training, and in which models?

A prediction from the text alone (`text/predictions`) is compared with the change of attention logits in training: in
(Y, Z) itself, in regular transformers, and on the ladder between the two, whose rungs change one thing at a time
(`text/model/ladder.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scansnap.base.checks import whole
from scansnap.base.errors import InputError
from scansnap.figures import text_runs
from scansnap.figures.described import described
from scansnap.figures.recipe import FigureRecipe
from scansnap.figures.statistics import majority
from scansnap.figures.style import COLORS, MARKERS, label, legend, line, log_axis
from scansnap.figures.trend import Trend
from scansnap.text.corpus.corpus import Corpus
from scansnap.text.model.ladder import LadderModel, Rung
from scansnap.text.model.shape import YZShape
from scansnap.text.model.yz import YZText
from scansnap.text.predictions.predict import predict
from scansnap.text.predictions.score import SCORES, TOP, score_prediction
from scansnap.text.training.options import YZTextOptions
from scansnap.text.training.passes import train_in_passes
from scansnap.text.training.windows import Columns, every_window

QUERIES, TOKENS, LEAST = 30, 3000, 50
RATIOS = (1.0, 10.0, 100.0)
RATIO = 10.0
"""That of the ladder."""

PASSES, NUM_SEEDS = 2, 2
LR_REGULAR = 5.0
METHODS = ("settled", "first_drive")
PARTS = ("yz", "regular", "ladder")

CLIMB: tuple[tuple[str, dict[str, Any]], ...] = (
    ("width 50", {"width": 50}),
    ("width 200", {"width": 200}),
    ("width 1000", {"width": 1000}),
    ("one matrix W", {"attention": "bilinear"}),
    ("W_Q and W_K", {"attention": "factored"}),
    ("LayerNorm", {"attention": "factored", "norm": "layer"}),
    ("residual", {"attention": "factored", "norm": "layer", "residual": True}),
    ("feed-forward", {"attention": "factored", "norm": "layer", "residual": True, "feed_forward": True}),
    ("positions", {"attention": "factored", "norm": "layer", "residual": True, "feed_forward": True,
                   "positions": True}),
)  # fmt: skip
"""From (Y, Z) to regular: after the widths, each rung has what the one before it has, and one thing more."""

ALONE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("LayerNorm alone", {"norm": "layer"}),
    ("residual alone", {"residual": True}),
    ("feed-forward alone", {"residual": True, "feed_forward": True}),
    ("positions alone", {"positions": True}),
)
"""One change to width 200 with Z itself; feed-forward has the residual connection that it is added to."""


def train(
    corpus: Corpus,
    *,
    parts: Sequence[str] = PARTS,
    num_seeds: int = NUM_SEEDS,
    passes: int = PASSES,
    device: str = "cpu",
    say: Callable[[str], None] = lambda words: None,
) -> xr.Dataset:
    """The predictions, and `change` (setting, seed, query, token): ranks of the change of attention logits.

    `predicted` (method, query, token) and `control`, from shuffled text, are on the same axes, with what they are
    compared with.  A run whose loss is not finite has no ranks: they are 0.
    """
    seeds = text_runs.seeds_of(num_seeds)
    whole("passes", passes, least=1)
    began = time.perf_counter()
    predictions = [
        predict(corpus, queries=QUERIES, tokens=TOKENS, least=LEAST, method=method, control=True, device=device)
        for method in METHODS
    ]
    say(f"predictions: {time.perf_counter() - began:.1f} s")
    first = predictions[0]
    queries, tokens = (torch.tensor(first[name].values, device=device) for name in ("query", "token"))
    runs: dict[str, list[Any]] = {"change": [], "loss": [], "seconds": []}
    labels: list[tuple[str, str, float]] = []
    for part in parts:
        for labeled, run in _runs(corpus, part, passes, device):
            labels.append(labeled)
            results = [_timed(run, seed, queries, tokens) for seed in seeds]
            for name, values in zip(runs, zip(*results, strict=True), strict=True):
                runs[name].append(values)
            words = ", ".join(f"{loss:.3f} in {seconds:.1f} s" for _, loss, seconds in results)
            say(f"{part}, {labeled[1]}, ratio {labeled[2]:g}: loss {words}")
    shared = ("setting", "seed")
    return xr.Dataset(
        {
            "change": ((*shared, "query", "token"), np.array(runs["change"])),
            "loss": (shared, np.array(runs["loss"])),
            "seconds": (shared, np.array(runs["seconds"])),
            "predicted": (("method", "query", "token"), np.array([p["gain"].values for p in predictions])),
            "control": (("method", "query", "token"), np.array([p["control"].values for p in predictions])),
            "count": first["count"],
            "frequency": first["frequency"],
        },
        coords={
            "part": ("setting", [part for part, _, _ in labels]),
            "model": ("setting", [model for _, model, _ in labels]),
            "ratio": ("setting", [ratio for _, _, ratio in labels]),
            "seed": list(seeds),
            "method": list(METHODS),
        },
        attrs={"passes": passes, "corpus": corpus.name, "training_seconds": round(time.perf_counter() - began, 1)},
    )  # fmt: skip


Run = Callable[[int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, float]]
"""Of a seed, queries and tokens: the change of the logits between them, and the loss at the end."""


def _runs(corpus: Corpus, part: str, passes: int, device: str) -> Iterator[tuple[tuple[str, str, float], Run]]:
    """Each setting of a part, and its training."""
    yz = YZTextOptions()
    windows = torch.from_numpy(every_window(corpus.train, yz.window).astype(np.int64)).to(device)

    def climb(make: Callable[[], YZText | LadderModel], ratio: float) -> Run:
        def run(seed: int, queries: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, float]:
            torch.manual_seed(seed)
            with torch.device(device):
                model = make()
            before = model.logits_between(queries, tokens)[0].clone()
            loss = train_in_passes(
                model, windows, batch_size=yz.batch_size, passes=passes, seed=seed, lr_y=yz.lr_y, lr_z=yz.lr_y / ratio
            )
            return model.logits_between(queries, tokens)[0] - before, loss

        return run

    def regular(setting: dict[str, Any]) -> Run:
        def run(seed: int, queries: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, float]:
            (training,) = text_runs.trainings(corpus, [{**setting, "seed": seed}], folder=None)
            before = training.model.logits_between(queries, tokens).mean(0)
            records = training.run(progress=False)
            change = training.model.logits_between(queries, tokens).mean(0) - before
            return change, float(records["loss"].values[0, -1])

        return run

    if part == "yz":
        shape = YZShape(vocab_size=corpus.vocab_size, window=yz.window)
        for ratio in RATIOS:
            yield (part, "(Y, Z)", ratio), climb(lambda: YZText(shape), ratio)
    elif part == "regular":
        steps = passes * Columns(corpus.train, yz.batch_size, yz.window).per_pass
        for layers in (1, 3):
            for positions in ("none", "sinusoidal"):
                for ratio in RATIOS:
                    setting = {
                        "layers": layers, "positions": positions, "lr_y": LR_REGULAR, "lr_z": LR_REGULAR / ratio,
                        "window": yz.window, "batch_size": yz.batch_size, "steps": steps, "record_every": steps,
                        "patterns": 0, "device": device,
                    }  # fmt: skip
                    name = f"{layers} layer{'s' * (layers > 1)}, {'no ' * (positions == 'none')}positions"
                    yield (part, name, ratio), regular(setting)
    elif part == "ladder":
        for name, switches in (*CLIMB, *ALONE):
            rung = Rung(**switches)
            sizes = {"vocab_size": corpus.vocab_size, "window": yz.window}
            yield (part, name, RATIO), climb(lambda rung=rung: LadderModel(rung, **sizes), RATIO)  # type: ignore[misc]
    else:
        raise InputError(f"there is no part '{part}': choose from {', '.join(PARTS)}.")


def _timed(run: Run, seed: int, queries: torch.Tensor, tokens: torch.Tensor) -> tuple[NDArray[np.uint16], float, float]:
    began = time.perf_counter()
    change, loss = run(seed, queries, tokens)
    if not torch.isfinite(change).all():
        return np.zeros(change.shape, np.uint16), np.nan, time.perf_counter() - began
    ranks = change.double().argsort(1).argsort(1) + 1
    return ranks.cpu().numpy().astype(np.uint16), loss, time.perf_counter() - began


def prepare(
    *,
    text: str | Path | Corpus | None = None,
    num_seeds: int = NUM_SEEDS,
    passes: int = PASSES,
    device: str = "cpu",
    changes: xr.Dataset | None = None,
) -> xr.Dataset:
    """Scores (setting, seed, method, explanation), mean over queries, of what `train` returns (called if None).

    `rank_of_query` (setting, query) is that of the first method, mean over seeds, and so on for `partial`, `winners`.
    `distinctness` (setting, seed) is its partial rank correlation, as in the figure `tokens`.
    """
    from scansnap.text.token_choice import count_tokens, rank_correlations  # compiled, which training does not need

    corpus = text_runs.corpus_of(text)
    if changes is None:
        changes = train(corpus, num_seeds=num_seeds, passes=passes, device=device)
    top = int(changes["token"].max()) + 1
    explained = count_tokens(corpus, changes["query"].values, window=YZTextOptions.window, tokens=top, least=LEAST)
    explained = explained.sel(token=changes["token"].values)
    actual = changes["change"].astype(np.float64).where(changes["change"] > 0)
    by_method = []
    for method in changes["method"].values:
        prediction = changes[["count", "frequency"]].assign(
            gain=changes["predicted"].sel(method=method), control=changes["control"].sel(method=method)
        )
        prediction = prediction.assign_coords(query_word=explained["query_word"])
        scores = [score_prediction(prediction, values) for values in actual.values]
        by_method.append(xr.concat(scores, "setting").rename(run="seed"))
    score = xr.concat(by_method, "method")
    first = score.isel(method=0).sel(explanation="prediction")
    distinct = [
        [rank_correlations(explained, z)["partial"].sel(explanation=["distinctness", "control"]).mean("query").values
         for z in values] for values in actual.values
    ]  # fmt: skip
    dataset = xr.Dataset(
        {
            **{name: score[name].mean("query") for name in (*SCORES,)},
            **{f"{name}_of_query": first[name].mean("seed") for name in SCORES},
            "calibration": score["calibration"].mean("seed"),
            "distinctness": (("setting", "seed", "shuffled"), np.array(distinct)),
            "loss": changes["loss"],
            "seconds": changes["seconds"],
            "compared": ("query", first["tokens"].values if first["tokens"].ndim == 1 else first["tokens"].values[0]),
        },
    ).assign_coords(
        part=changes["part"], model=changes["model"], ratio=changes["ratio"], method=changes["method"],
        query=explained["query_word"].values, seed=changes["seed"], shuffled=[False, True],
    )  # fmt: skip
    dataset = dataset.drop_vars("query_word", errors="ignore")
    options = {
        "corpus": corpus.name, "passes": int(changes.attrs["passes"]), "num_seeds": changes.sizes["seed"],
        "least": LEAST, "top": TOP,
    }  # fmt: skip
    return described(dataset, options)
