"""When does attention snap on text?

In the theory attention snaps because what drives it dies out: the residual x_{T+1} - alpha of a separable data set
vanishes.  A text of N tokens that a model can learn by heart is separable, a longer one is not.  So models are trained
on N tokens and measured on the windows that they train on, without dropout.  The *training loss*, the mean over the
last tenth of the updates, says how far the residual has vanished; `ss.measure.snaps` says whether attention is frozen,
and `late` is its largest change in the last fifth of the run as a share of the peak: frozen is at most a tenth.

A rate that falls to zero stops attention whatever the residual does.  Its runs are therefore judged by two clocks: by
updates, and by the accumulated rate s_k, the sum over j < k of the share of the rate that update j used, in units of
which a gradient flow moves as far at any rate.  Attention that stops by the first clock alone stopped because its rate
did.  (The rate falls as a cosine: a fifth of the run before its end it is a tenth of the full one, so that attention
that merely follows it counts as frozen.)

A seed takes the start of the transformer and its own stretch of the text, tokens sN to (s + 1)N for seed s; Y and Z
start at zero, so only the text differs between their runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy import stats

import scansnap as ss
from common import FOLDER, command, read_text, stored_training, updates_per_pass, with_options
from scansnap.figures.statistics import LEVEL, all_rise
from scansnap.figures.style import COLORS, MARKERS, log_axis

SIZES = (2_000, 8_000)
RATES = {"transformer": (1.0, 2.0, 5.0), "yz": (100.0, 300.0, 1000.0)}
BATCH_SIZE, OTHER_BATCHES = 20, (5, 50)
FALLING = "cosine"
STEPS, RECORDS, WIDTH, WINDOW = 1_000, 100, 32, 35

FULL = {"sizes": (2_000, 20_000, 200_000), "steps": 20_000, "width": ss.TextOptions.width}
"""The experiment of the documents, for a GPU: the published width, and a text too long to learn by heart."""

NAMES = {"transformer": "regular transformer", "yz": "Y and Z"}
WORDS = {"size": "tokens", "lr": "rate", "batch_size": "batch"}
LEAST = 1e-4
"""Smaller changes are shown and compared as this share of the peak: rounding moves attention, too."""

FROZEN = 0.1
"""Late change, as a share of the peak, below which attention counts as frozen."""

CELL = ("model", "size", "lr", "schedule", "batch_size")


@dataclass(frozen=True)
class Cell:
    """A setting that is trained at every seed."""

    model: str
    size: int
    lr: float
    schedule: str = "constant"
    batch_size: int = BATCH_SIZE


def cells(models: Iterable[str], sizes: Sequence[int]) -> list[Cell]:
    """For each model every size at every rate, constant and falling; other batches at the middle rate.

    Other batches are not made of the last size, if there are several: it takes most of the time.
    """
    batches = list(product(sizes[:-1] or sizes, OTHER_BATCHES))
    return [
        cell
        for model in models
        for cell in (
            *(Cell(model, *setting) for setting in product(sizes, RATES[model], ("constant", FALLING))),
            *(Cell(model, size, RATES[model][1], batch_size=batch) for size, batch in batches),
        )
    ]


def excerpt(corpus: Any, count: int, *, start: int = 0) -> Any:
    """`count` tokens of the training text from `start` on, as both splits of a corpus.

    If tokens are words, its vocabulary holds only those that occur in it, and those that every vocabulary holds.
    """
    if start + count > len(corpus.train):
        raise ss.InputError(
            f"the training text of {corpus.name} has {len(corpus.train):,} tokens, so it has no {count:,} tokens from "
            f"{start:,} on: give a longer text, or a smaller count."
        )
    tokens, tokenizer = np.array(corpus.train[start : start + count]), corpus.tokenizer
    if hasattr(tokenizer, "vocabulary"):  # words
        always = [tokenizer.vocabulary.index(word) for word in ("<eos>", "<unk>")]
        occurring = np.union1d(tokens, always)
        tokens = np.searchsorted(occurring, tokens).astype(tokens.dtype)
        tokenizer = type(tokenizer)(tokenizer.words(occurring), tokenizer.name)
    digest = hashlib.blake2b(f"{corpus.fingerprint} {start} {count}".encode(), digest_size=16).hexdigest()
    splits = MappingProxyType({"train": tokens, "valid": tokens})
    return replace(corpus, tokenizer=tokenizer, splits=splits, fingerprint=digest)


def trained_windows(corpus: Any, batch_size: int) -> NDArray[np.int32]:
    """All tokens that updates read as inputs and one more, so that the validation windows are those trained on.

    The next token of a column's last input is here the first of the next column.
    """
    columns = corpus.train[: len(corpus.train) // batch_size * batch_size].reshape(batch_size, -1)
    length = WINDOW * updates_per_pass(corpus, batch_size=batch_size, window=WINDOW)
    return np.append(columns[:, :length].ravel(), columns[-1, length]).astype(np.int32)


def train(
    corpus: Any,
    cell: Cell,
    seed: int,
    *,
    steps: int = STEPS,
    width: int = WIDTH,
    device: str = "cpu",
    folder: Path | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """A run of a setting: `loss`, `moved` and `normalized_entropy` over its records."""
    text = excerpt(corpus, cell.size, start=seed * cell.size)
    read = trained_windows(text, cell.batch_size)
    text = replace(text, splits=MappingProxyType({"train": text.train, "valid": read}))
    setting: dict[str, Any] = {
        "model": cell.model,
        "lr_y": cell.lr,
        "schedule": cell.schedule,
        "batch_size": cell.batch_size,
        "window": WINDOW,
        "steps": steps,
        "record_every": max(1, steps // RECORDS),
        "patterns": 0,
        "device": device,
    }
    if cell.model == "transformer":
        options: Any = ss.TextOptions(**setting, width=width, feed_forward=width, dropout=0.0, seed=seed)
    else:
        options = ss.YZTextOptions(**setting, queries=0)
    run = stored_training(text, options, folder).run(progress)
    return xr.Dataset(
        {
            "loss": ("record", run["loss"].values[0]),
            **{
                name: ("record", run[name].isel(run=0, layer=0).mean("head").values)
                for name in ("moved", "normalized_entropy")
            },
        },
        coords={"record": run["step"].values},
    )


def prepare(
    *,
    text: Any,
    num_seeds: int = 1,
    models: Sequence[str] = tuple(RATES),
    sizes: Sequence[int] = SIZES,
    steps: int = STEPS,
    width: int = WIDTH,
    device: str = "cpu",
    folder: Path | None = FOLDER,
    progress: bool | None = None,
) -> xr.Dataset:
    """What `gathered` returns, from new runs."""
    corpus = read_text(text)
    settings, seeds = cells(models, sizes), range(num_seeds)
    common: dict[str, Any] = {"steps": steps, "width": width, "device": device}
    runs = [
        train(corpus, cell, seed, **common, folder=folder, progress=progress) for cell in settings for seed in seeds
    ]
    return with_options(gathered(settings, runs, steps), {**common, "corpus": corpus.name, "num_seeds": num_seeds})


def gathered(settings: Sequence[Cell], runs: Sequence[xr.Dataset], steps: int) -> xr.Dataset:
    """The runs of each setting, seed by seed, in one dataset.

    By cell and seed: the training `loss` and the `entropy` at the end; by updates `late` and `snap_step`, by the
    accumulated rate `late_by_rate` and `snap_by_rate` (NaN: not frozen).
    """
    num_seeds = len(runs) // len(settings)
    records = runs[0]["record"].values
    clocks = np.array([_clock(cell.schedule, records, steps) for cell in settings])
    ends = records > 0.9 * steps

    by_updates = [_snaps(records, run["moved"].values) for run in runs]
    by_rate = [_snaps(clocks[i // num_seeds], run["moved"].values) for i, run in enumerate(runs)]
    numbers = {
        "loss": (run["loss"].values[ends].mean() for run in runs),
        "entropy": (run["normalized_entropy"].values[-1] for run in runs),
        "late": (snap["late_share"] for snap in by_updates),
        "snap_step": (snap["snap_step"] for snap in by_updates),
        "late_by_rate": (snap["late_share"] for snap in by_rate),
        "snap_by_rate": (snap["snap_step"] for snap in by_rate),
    }
    return xr.Dataset(
        {
            name: (("cell", "seed"), np.array(list(values), np.float64).reshape(len(settings), num_seeds))
            for name, values in numbers.items()
        },
        coords={
            **{name: ("cell", [asdict(cell)[name] for cell in settings]) for name in CELL},
            "seed": range(num_seeds),
        },
    )


def _clock(schedule: str, records: NDArray[np.int64], steps: int) -> NDArray[np.float64]:
    """The accumulated share of the rate at each record."""
    member = ss.SCHEDULES.member(schedule)
    return np.append(0.0, np.cumsum([member.share(step / steps) for step in range(steps)]))[records]


def _snaps(clock: NDArray[Any], moved: NDArray[np.float64]) -> xr.Dataset:
    """When a pattern froze by a clock, and its largest late rate as a share of the peak."""
    return ss.measure.snaps(xr.Dataset({"moved": ("time", moved)}, coords={"time": clock.astype(np.float64)}))


def _chosen(dataset: xr.Dataset, **wanted: Any) -> xr.Dataset:
    """The cells that have these values."""
    keep = np.ones(dataset.sizes["cell"], bool)
    for name, value in wanted.items():
        keep &= dataset[name].values == value
    return dataset.isel(cell=keep)


def _mean(values: xr.DataArray) -> NDArray[np.float64]:
    """The geometric mean over seeds: shares of a peak spread over decades."""
    means: NDArray[np.float64] = np.exp(np.log(values.clip(min=LEAST).transpose("cell", "seed").values).mean(1))
    return means


def draw(dataset: xr.Dataset) -> Figure:
    """A column for each model: change against training loss, by the two clocks, and against the batch size."""
    models = list(dict.fromkeys(dataset["model"].values.tolist()))
    figure = Figure(figsize=(3.1 * len(models) + 0.7, 10.5), layout="constrained")
    axes = figure.subplots(3, len(models), sharey=True, squeeze=False)
    for column, model in zip(axes.T, models, strict=True):
        of_model = _chosen(dataset, model=model)
        _against_loss(column[0], _chosen(of_model, schedule="constant", batch_size=BATCH_SIZE))
        rates = "  ".join(f"{sign} {rate:g}" for sign, rate in zip("●■▲", np.unique(of_model["lr"]), strict=False))
        column[0].set_title(f"{NAMES[model]}\nrate: {rates}", fontsize=12)
        _by_clocks(column[1], _chosen(of_model, batch_size=BATCH_SIZE))
        _against_batch(column[2], _chosen(of_model, schedule="constant", lr=RATES[model][1]), RATES[model][1])
        for panel in column:
            panel.set_yscale("log")
            panel.axhline(FROZEN, color="black", linestyle=":", linewidth=1)
            panel.grid(alpha=0.3)
            panel.tick_params(labelsize=10)
    for panel, words in zip(axes[:, 0], ("constant rate", "constant and falling rate", "constant rate"), strict=True):
        panel.set_ylabel(f"largest late change / peak\n{words}", fontsize=11)
    lines = [
        Line2D([], [], color=COLORS[i], linewidth=3, label=f"{size:,} tokens")
        for i, size in enumerate(np.unique(dataset["size"]))
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), frameon=False, fontsize=11)
    seeds = f"{dataset.sizes['seed']} seed{'s' * (dataset.sizes['seed'] > 1)}"
    figure.suptitle(f"When attention snaps on text ({seeds})\nfrozen: below the dotted line", fontsize=13)
    return figure


def _against_loss(axes: Axes, dataset: xr.Dataset) -> None:
    """A mark for each run."""
    sizes, rates = (np.unique(dataset[name]).tolist() for name in ("size", "lr"))
    for i in range(dataset.sizes["cell"]):
        cell = dataset.isel(cell=i)
        color, marker = COLORS[sizes.index(int(cell["size"]))], MARKERS[rates.index(float(cell["lr"]))]
        axes.plot(
            cell["loss"],
            cell["late"].clip(min=LEAST),
            marker=marker,
            color=color,
            markersize=8,
            linestyle="",
            alpha=0.8,
        )
    losses = np.log10(dataset["loss"].values)
    if np.isfinite(losses).any():  # otherwise all diverged
        decades = 10.0 ** np.arange(np.floor(np.nanmin(losses)), np.ceil(np.nanmax(losses)) + 1)
        log_axis(axes, decades)
        axes.set_xlim(decades[0] / 1.2, decades[-1] * 1.2)
    axes.set_xlabel("training loss (nats)", fontsize=11)


def _by_clocks(axes: Axes, dataset: xr.Dataset) -> None:
    """A line for each size and rate, from the constant rate to the falling one by both clocks; means over seeds."""
    sizes, rates = (np.unique(dataset[name]).tolist() for name in ("size", "lr"))
    for (i, size), (j, rate) in product(enumerate(sizes), enumerate(rates)):
        constant, falling = (_chosen(dataset, size=size, lr=rate, schedule=name) for name in ("constant", FALLING))
        values = [_mean(constant["late"])[0], _mean(falling["late"])[0], _mean(falling["late_by_rate"])[0]]
        axes.plot(range(3), values, marker=MARKERS[j], color=COLORS[i], markersize=6, linewidth=1.2)
    axes.set_xticks(range(3), ["constant", "falling,\nby\nupdates", "falling,\nper unit\nof rate"], fontsize=10)
    axes.set_xlim(-0.3, 2.3)


def _against_batch(axes: Axes, dataset: xr.Dataset, rate: float) -> None:
    """A line for each size that was trained with several batch sizes; means over seeds."""
    for i, size in enumerate(np.unique(dataset["size"])):
        of_size = _chosen(dataset, size=size).sortby("batch_size")
        if of_size.sizes["cell"] > 1:
            axes.plot(of_size["batch_size"], _mean(of_size["late"]), color=COLORS[i], marker=MARKERS[1], linewidth=1.4)
    log_axis(axes, np.unique(dataset["batch_size"]))
    axes.set_xlabel(f"batch size (windows), rate {rate:g}", fontsize=11)


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """For each model, what freezes attention; statements about means need two seeds."""
    return [
        trend
        for model in dict.fromkeys(dataset["model"].values.tolist())
        for trend in _trends(_chosen(dataset, model=model), NAMES[model], RATES[model][1])
    ]


def _trends(dataset: xr.Dataset, name: str, middle: float) -> list[ss.Trend]:
    at_batch = _chosen(dataset, batch_size=BATCH_SIZE)
    constant, falling = (_chosen(at_batch, schedule=schedule) for schedule in ("constant", FALLING))
    tested = [
        _loss_decides(
            f"At a constant rate attention freezes where the training loss is small ({name}).", constant, "snap_step"
        ),
        _loss_orders(
            f"At a constant rate attention moves the less late, the smaller the training loss ({name}).", constant
        ),
    ]
    if dataset.sizes["seed"] > 1:
        at_middle = _chosen(dataset, schedule="constant", lr=middle)
        tested += [
            *_rises(constant, "size", "lr", f"A longer text keeps attention moving ({name})."),
            *_rises(constant, "lr", "size", f"A larger rate keeps attention moving ({name})."),
            *_rises(at_middle, "batch_size", "size", f"A smaller batch keeps attention moving ({name}).", sign=-1),
        ]
    by_updates, by_rate = (np.isfinite(falling[clock].values) for clock in ("snap_step", "snap_by_rate"))
    return [
        *tested,
        ss.Trend(
            f"A falling rate stops attention that has not settled ({name}).",
            "above 0 runs",
            float((by_updates & ~by_rate).sum()),
            None,
            None,
            bool((by_updates & ~by_rate).any()),
            f"runs frozen by updates but not per unit of rate; of {by_rate.size} runs {by_updates.sum()} are frozen "
            f"by updates, {by_rate.sum()} per unit of rate; seeds: {dataset.sizes['seed']}",
        ),
        _loss_decides(
            f"Per unit of a falling rate attention freezes where the training loss is small ({name}).",
            falling,
            "snap_by_rate",
        ),
    ]


def _settings(dataset: xr.Dataset, *names: str) -> list[NDArray[np.float64]]:
    """These variables of the settings of which no run diverged, with the dimensions cell and seed."""
    whole_rows = np.isfinite(dataset["loss"].values).all(1)
    return [dataset[name].values[whole_rows] for name in names]


def _loss_decides(statement: str, dataset: xr.Dataset, clock: str) -> ss.Trend:
    """Whether settings in which most seeds freeze have the smaller training loss; a setting counts once."""
    runs, snaps = _settings(dataset, "loss", clock)
    losses, frozen = runs.mean(1), np.isfinite(snaps).mean(1) > 0.5
    if not 0 < frozen.sum() < frozen.size:
        note = f"{frozen.sum()} of {frozen.size} settings freeze, so losses cannot be compared"
        return ss.Trend(statement, "above 0.5", np.nan, None, None, False, note, settled=False)
    test = stats.mannwhitneyu(losses[frozen], losses[~frozen], alternative="less")
    share = 1.0 - test.statistic / (frozen.sum() * (~frozen).sum())
    note = (
        f"share of pairs of a setting that froze and one that did not in which the first has the smaller loss; "
        f"Mann and Whitney's test over {frozen.size} settings, level {LEVEL:.0%}, seeds: {dataset.sizes['seed']}; "
        f"frozen: loss {losses[frozen].min():.2g} to {losses[frozen].max():.2g}, "
        f"not: {losses[~frozen].min():.2g} to {losses[~frozen].max():.2g}"
    )
    p = float(test.pvalue)
    return ss.Trend(statement, "above 0.5", share, None, p, p <= LEVEL, note, settled=p <= LEVEL or share < 0.5)


def _loss_orders(statement: str, dataset: xr.Dataset) -> ss.Trend:
    """Whether late change grows with the training loss from setting to setting."""
    losses, late = (values.mean(1) for values in _settings(dataset, "loss", "late"))
    if len(losses) < 3:
        note = f"settings without a run that diverged: {len(losses)}, needed: 3"
        return ss.Trend(statement, "above 0", np.nan, None, None, False, note, settled=False)
    test = stats.spearmanr(losses, late, alternative="greater")
    note = (
        f"rank correlation of training loss and late change over {len(losses)} settings, one-sided, level {LEVEL:.0%}, "
        f"seeds: {dataset.sizes['seed']}"
    )
    p = float(test.pvalue)
    is_settled = p <= LEVEL or p >= 1 - LEVEL
    return ss.Trend(statement, "above 0", float(test.statistic), None, p, p <= LEVEL, note, is_settled)


def _rises(dataset: xr.Dataset, axis: str, other: str, statement: str, sign: int = 1) -> list[ss.Trend]:
    """Whether ln `late` rises with the values of one axis, between neighbors and at each value of the other.

    A run that diverged takes its comparisons with it.
    """
    labels, differences = [], []
    for fixed in np.unique(dataset[other]):
        row = _chosen(dataset, **{other: fixed}).sortby(axis)
        logs = np.log(row["late"].clip(min=LEAST).values)
        for (low, high), difference in zip(pairwise(row[axis].values), sign * np.diff(logs, axis=0), strict=True):
            if np.isfinite(difference).all():
                labels.append(f"{WORDS[other]} {fixed:,g}, {WORDS[axis]} {low:,g} to {high:,g}")
                differences.append(difference)
    return [all_rise(statement, labels, np.array(differences))] if labels else []


FIGURE = ss.FigureRecipe(
    name="snap",
    title="When attention snaps on text",
    statement=(
        "Attention freezes where the residual vanishes: on a text that the model learns by heart, at a rate small "
        "enough for its training loss to get near 0."
    ),
    setting=(
        "the first N tokens of a text (further stretches of N for further seeds), measured on the windows trained on; "
        "1-layer transformers as in Figure 7 without dropout, and Y and Z; plain SGD at one rate, constant or falling "
        "to zero as a cosine, batches of 20 windows and, at the middle rate, of 5 and 50"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)

if __name__ == "__main__":
    command(FIGURE)
