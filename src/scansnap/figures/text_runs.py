"""Transformers trained on text, as Figures 7 and 10 need them: one after another, each kept and resumed by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scansnap.data.text.corpus import Corpus, read_corpus
from scansnap.dynamics.text.train import train_text
from scansnap.errors import InputError
from scansnap.results.provenance import provenance

FOLDER = Path("results") / "text"


def corpus_of(text: str | Path | Corpus | None) -> Corpus:
    """The text to train on, which these figures cannot do without."""
    if text is None:
        raise InputError(
            "this figure is made from text: give a text file, a folder of text files such as WikiText-2's, or a name."
        )
    return text if isinstance(text, Corpus) else read_corpus(text)


def make(
    corpus: Corpus,
    settings: Sequence[Mapping[str, Any]],
    *,
    folder: Path | None = FOLDER,
    progress: bool | None = None,
    on_run: Callable[[str], None] | None = None,
) -> list[xr.Dataset]:
    """`train_text` with each setting; with a folder every run is kept there, and read if it is there already."""
    found = []
    for i, setting in enumerate(settings):
        if on_run:
            on_run(f"run {i + 1} of {len(settings)}")
        store = None if folder is None or find_spec("zarr") is None else folder / _name(corpus, setting)
        found.append(train_text(corpus, **setting, store=store, progress=progress))
    return found


def _name(corpus: Corpus, setting: Mapping[str, Any]) -> str:
    """The same for the same run of the same version, so that an interrupted one goes on."""
    origin = provenance()
    code = {name: origin.get(name) for name in ("version_scansnap", "commit")}
    described = json.dumps({**setting, **code, "corpus": corpus.fingerprint}, sort_keys=True)
    return f"{corpus.name}-{hashlib.sha256(described.encode()).hexdigest()[:8]}.zarr"


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
                f"{int(run['diverged_step'][0]):,}: leave out that rate."
            )


def mean_over_heads(run: xr.Dataset, name: str, layer: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A variable of one layer over steps, mean over its heads."""
    return run[name].isel(run=0, layer=layer).mean("head").values
