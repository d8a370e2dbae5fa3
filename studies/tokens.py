"""Which tokens does a 1-layer transformer trained on text attend to?

Theorem 2 says that tokens distinct for a next token gain attention and common ones lose it; Theorem 3 says that among
distinct tokens those that co-occur more with the query keep it.  Both are about a decoder that learns faster than
attention.  Without positions the first layer's logit between two tokens is a number z_m(l) that depends on nothing
else, as in the theory.  Its change over training is compared, by ranks, with statistics of the training text
(`token_choice.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

import scansnap as ss
from common import FOLDER, command, read_text, stored_training, updates_per_pass, with_options
from scansnap.figures.statistics import rise
from scansnap.figures.style import COLORS, MARKERS, label, line, log_axis
from token_choice import EXPLANATIONS, LEAST_TOKENS, count_tokens, rank_correlations

LR_Y = 5.0
RATIOS = (1.0, 3.0, 10.0, 30.0, 100.0)
NUM_SEEDS = 5
PASSES = 3
QUERIES = 30
TOKENS = 3000
WORDS = {
    "distinctness": "distinctness",
    "cooccurrence": "co-occurrence",
    "frequency": "raw frequency",
    "control": "shuffled control",
}


def train(
    corpus: Any,
    *,
    num_seeds: int = NUM_SEEDS,
    ratios: Sequence[float] = RATIOS,
    steps: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    folder: Path | None = FOLDER,
    progress: bool | None = None,
) -> xr.Dataset:
    """`logits` (ratio, seed, end, query, token) before and after training, and `valid_loss` (ratio, seed)."""
    queries, tokens = corpus.frequent_words(QUERIES), np.arange(min(TOKENS, corpus.vocab_size))
    if steps is None:
        steps = PASSES * updates_per_pass(corpus, batch_size=ss.TextOptions.batch_size, window=ss.TextOptions.window)
    common: dict[str, Any] = {"positions": "none", "record_every": steps, "device": device, "precision": precision}
    settings = [
        ss.TextOptions(**common, steps=steps, lr_y=LR_Y, lr_z=LR_Y / ratio, seed=seed)
        for ratio, seed in product(ratios, range(num_seeds))
    ]
    shape = (len(ratios), num_seeds)
    logits = np.empty((len(settings), 2, len(queries), len(tokens)), np.float32)
    losses, entropies = np.empty((2, len(settings)))
    for i, options in enumerate(settings):
        training = stored_training(corpus, options, folder)
        logits[i, 0] = query_logits(training.model, queries, tokens)
        run = training.run(progress)
        if str(run["status"].values[0]) != "ok":
            raise ss.InputError(f"the run of {options} diverged: train for fewer steps.")
        logits[i, 1] = query_logits(training.model, queries, tokens)
        losses[i] = run["valid_loss"].values[0, -1]
        entropies[i] = run["normalized_entropy"].values[0, -1].mean()
    return xr.Dataset(
        {
            "logits": (("ratio", "seed", "end", "query", "token"), logits.reshape(*shape, *logits.shape[1:])),
            "valid_loss": (("ratio", "seed"), losses.reshape(shape)),
            "normalized_entropy": (("ratio", "seed"), entropies.reshape(shape)),
        },
        coords={"ratio": list(ratios), "seed": range(num_seeds), "query": queries},
        attrs={"steps": steps},
    )


def prepare(
    *,
    text: Any,
    num_seeds: int = NUM_SEEDS,
    steps: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    logits: xr.Dataset | None = None,
    folder: Path | None = FOLDER,
    progress: bool | None = None,
) -> xr.Dataset:
    """`partial` and `plain` (ratio, seed, explanation): rank correlations of the change of logits, mean over queries.

    `start` has the partial ones for the logits before training.  `logits` comes from `train`, which is called if it is
    None.
    """
    corpus = read_text(text)
    if logits is None:
        logits = train(
            corpus,
            num_seeds=num_seeds,
            steps=steps,
            device=device,
            precision=precision,
            folder=folder,
            progress=progress,
        )
    counts = count_tokens(corpus, logits["query"].values, window=ss.TextOptions.window, tokens=logits.sizes["token"])
    if not (np.isfinite(counts["distinctness"].values).sum(1) >= LEAST_TOKENS).any():
        raise ss.InputError(
            f"no frequent word of {corpus.name} has {LEAST_TOKENS} tokens beside it that are seen often enough: "
            "give a longer text."
        )
    before, after = logits["logits"].isel(end=0).values, logits["logits"].isel(end=1).values
    cells = list(np.ndindex(before.shape[:2]))
    shape = (logits.sizes["ratio"], logits.sizes["seed"], len(EXPLANATIONS) + 1)
    changes = [rank_correlations(counts, after[cell] - before[cell]) for cell in cells]
    starts = [rank_correlations(counts, before[cell]) for cell in cells]
    dims = ("ratio", "seed", "explanation")

    def over_queries(correlations: list[xr.Dataset], name: str) -> NDArray[np.float64]:
        return np.array([one_run[name].mean("query").values for one_run in correlations]).reshape(shape)

    dataset = xr.Dataset(
        {
            "partial": (dims, over_queries(changes, "partial")),
            "plain": (dims, over_queries(changes, "plain")),
            "start": (dims, over_queries(starts, "partial")),
            "valid_loss": logits["valid_loss"],
            "normalized_entropy": logits["normalized_entropy"],
            "tokens": ("query", changes[0]["tokens"].values),
        },
        coords={
            "ratio": logits["ratio"].values,
            "seed": logits["seed"].values,
            "explanation": changes[0]["explanation"].values,
            "query": counts["query_word"].values,
        },
    )
    options = {
        "corpus": corpus.name,
        "lr_y": LR_Y,
        "steps": int(logits.attrs["steps"]),
        "num_seeds": logits.sizes["seed"],
    }
    return with_options(dataset, options)


def draw(dataset: xr.Dataset) -> Figure:
    """Correlations against the ratio: partial ones, with the other explanations taken out, and plain ones."""
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    ratios = dataset["ratio"].values
    panels = (("partial", "partial: the other two taken out"), ("plain", "plain"))
    for k, (name, title) in enumerate(panels):
        axes = figure.add_subplot(1, 2, k + 1)
        for i, explanation in enumerate(dataset["explanation"].values):
            values = dataset[name].sel(explanation=explanation).transpose("ratio", "seed")
            spread = values.std("seed", ddof=1) if values.sizes["seed"] > 1 else None
            style = {"color": "gray", "linestyle": ":"} if explanation == "control" else line(i)
            axes.errorbar(
                ratios * 1.03**i,
                values.mean("seed"),
                spread,
                **style,
                marker=MARKERS[i],
                markersize=4,
                capsize=2,
                linewidth=1.4,
                label=WORDS[str(explanation)],
            )
        axes.axhline(0, color=COLORS[6], linewidth=0.7)
        log_axis(axes, ratios)
        label(axes, x="$\\eta_Y/\\eta_Z$", y="rank correlation with the change of logits", title=title)
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle("What the attention learned from text follows; bars: standard deviation over seeds", fontsize=11)
    return figure


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """Whether distinctness and co-occurrence explain anything, at equal rates and at the largest ratio."""
    if dataset.sizes["seed"] < 2:
        return []
    tested = []
    ends = (dataset["ratio"].values[0], dataset["ratio"].values[-1])
    for name, theorem in (("distinctness", "Theorem 2"), ("cooccurrence", "Theorem 3")):
        partial = dataset["partial"].sel(explanation=name)
        for ratio in ends:
            what = f"partial rank correlation of {WORDS[name]} with the change of logits, mean over queries"
            tested.append(
                rise(
                    f"{WORDS[name].capitalize()} gains attention at η_Y/η_Z = {ratio:g} ({theorem}).",
                    partial.sel(ratio=ratio).values,
                    what,
                )
            )
        tested.append(
            rise(
                f"{WORDS[name].capitalize()} matters more at η_Y/η_Z = {ends[1]:g} than at {ends[0]:g}.",
                (partial.sel(ratio=ends[1]) - partial.sel(ratio=ends[0])).values,
                "difference of these correlations, same seeds",
            )
        )
    return tested


def query_logits(model: Any, queries: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """The logits between queries and tokens, mean over heads."""
    device = next(model.parameters()).device
    ids = (torch.tensor(values, device=device) for values in (queries, tokens))
    return model.logits_between(*ids).mean(0).cpu().numpy()


FIGURE = ss.FigureRecipe(
    name="tokens",
    title="Which tokens attention chooses in text, against the ratio of the learning rates",
    statement=(
        "If the decoder learns much faster than attention, tokens that are distinct for a next token gain attention "
        "over common ones (Theorem 2), and among tokens those that co-occur more with the query (Theorem 3)."
    ),
    setting=(
        "1-layer transformers without positions on text, SGD with η_Y = 5 and η_Z = 5 over the ratio, otherwise as in "
        "Figure 7; the 30 most frequent words as queries, contextual tokens seen beside the query at least 50 times"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)

if __name__ == "__main__":
    command(FIGURE)
