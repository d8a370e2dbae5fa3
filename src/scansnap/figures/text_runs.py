"""Transformers trained on text, as Figures 7 and 10 need them: one after another, each kept and resumed by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scansnap.base.errors import InputError
from scansnap.results.provenance import store_name
from scansnap.text.corpus.corpus import Corpus, read_corpus
from scansnap.text.model.shape import TextShape
from scansnap.text.training.options import TextOptions
from scansnap.text.training.ranks import processes
from scansnap.text.training.train import TextTraining, text_training
from scansnap.text.training.windows import Columns

FOLDER = Path("results") / "text"


def corpus_of(text: str | Path | Corpus | None) -> Corpus:
    """The text to train on, which these figures cannot do without."""
    if text is None:
        raise InputError(
            "this figure is made from text: give a text file, a folder of text files such as WikiText-2's, or a name "
            "(--text)."
        )
    return text if isinstance(text, Corpus) else read_corpus(text)


def passes(corpus: Corpus, count: int) -> int:
    """The updates of so many passes over the training text."""
    return count * Columns(corpus.train, TextOptions.batch_size, TextShape.window).per_pass


def trainings(
    corpus: Corpus, settings: Iterable[Mapping[str, Any]], *, folder: Path | None = FOLDER
) -> Iterator[TextTraining]:
    """Each setting of `train_text`, ready to run; with a folder runs are kept there, and read if they are there."""
    if processes() > 1:
        raise InputError(f"figures are made by one process, not {processes()}: start them without a launcher.")
    keeps = folder is not None and find_spec("zarr") is not None
    for setting in settings:
        name = store_name(corpus.name, {**setting, "corpus": corpus.fingerprint})
        store = folder / name if keeps and folder is not None else None
        yield text_training(corpus, **setting, store=store)


def seeds_of(count: int) -> range:
    """The seeds of a figure."""
    if count < 1:
        raise InputError(f"seeds is {count}: give at least one.")
    return range(count)


def refuse_diverged(runs: Sequence[xr.Dataset]) -> None:
    """Say which run diverged, if one did."""
    for run in runs:
        if str(run["status"].values[0]) == "diverged":
            raise InputError(
                f"the run at lr_y {float(run['lr_y'][0]):g}, seed {int(run['seed'][0])} diverged at step "
                f"{int(run['diverged_step'][0]):,}: the figure has nothing to show there."
            )


def mean_over_heads(run: xr.Dataset, name: str, layer: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A variable of one layer over steps, mean over its heads."""
    return run[name].isel(run=0, layer=layer).mean("head").values
