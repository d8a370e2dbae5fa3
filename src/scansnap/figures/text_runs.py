"""Transformers trained on text for the figures, one after another; each is stored and resumed by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from scansnap.corpus.batches import Columns
from scansnap.corpus.corpus import Corpus, read_corpus
from scansnap.figures.statistics import enough_seeds
from scansnap.results.provenance import store_name
from scansnap.runtime.errors import InputError
from scansnap.text.options import TextOptions, TextShape, text_options
from scansnap.text.processes import process_count
from scansnap.text.train import TextTraining, text_training

FOLDER = Path("results") / "text"


def corpus_of(text: str | Path | Corpus | None) -> Corpus:
    """The text to train on, which must be given."""
    if text is None:
        raise InputError(
            "this figure is made from text: give a text file, a folder of text files such as WikiText-2's, or a name "
            "(--text)."
        )
    return text if isinstance(text, Corpus) else read_corpus(text)


def passes(corpus: Corpus, count: int) -> int:
    """The number of updates in `count` passes over the training text."""
    return count * Columns(corpus.train, TextOptions.batch_size, TextShape.window).per_pass


def trainings(
    corpus: Corpus, settings: Iterable[Mapping[str, Any]], *, folder: Path | None = FOLDER
) -> Iterator[TextTraining]:
    """A training of `train_text` for each setting, ready to run; with a folder, runs are stored there and reused."""
    if process_count() > 1:
        raise InputError(
            f"figures are made by one process, but there are {process_count()}: start the command without a launcher."
        )
    for setting in settings:
        name = store_name(corpus.name, {**setting, "corpus": corpus.fingerprint})
        store = None if folder is None else folder / name
        yield text_training(corpus, text_options(setting), store=store)


def train_grid(
    corpus: Corpus,
    axis: str,
    settings: Mapping[Any, Mapping[str, Any]],
    *,
    num_seeds: int,
    folder: Path | None,
    progress: bool | None,
) -> tuple[list[xr.Dataset], xr.Dataset]:
    """The runs of each setting with each seed, and what the figures measure (axis, seed, record).

    Measures of attention are means over the heads of the first layer; `valid_loss` (axis, seed) is the last.
    """
    seeds = range(enough_seeds(num_seeds, least=1))
    each = [{**setting, "seed": seed} for setting in settings.values() for seed in seeds]
    runs = [training.run(progress) for training in trainings(corpus, each, folder=folder)]
    parts = []
    for run in runs:
        first = run.isel(run=0, layer=0).reset_coords(drop=True).rename(step="record")
        part = first[["entropy", "normalized_entropy", "moved", "top_1"]].mean("head", skipna=False)
        parts.append(part.assign(valid_loss=first["valid_loss"].isel(record=-1, drop=True)))
    rows = [parts[i : i + num_seeds] for i in range(0, len(parts), num_seeds)]
    measures = xr.combine_nested(rows, [axis, "seed"])
    return runs, measures.assign_coords({axis: list(settings), "seed": list(seeds)}).transpose(axis, "seed", "record")


def refuse_diverged(runs: Sequence[xr.Dataset]) -> None:
    """Refuse runs of which one diverged."""
    for run in runs:
        if str(run["status"].values[0]) == "diverged":
            seed = f", seed {int(run['seed'][0])}" if "seed" in run.coords else ""  # Y and Z start at zero
            raise InputError(
                f"the run at lr_y {float(run['lr_y'][0]):g}{seed} diverged at step "
                f"{int(run['diverged_step'][0]):,}, so the figure cannot be made: train for fewer steps."
            )
