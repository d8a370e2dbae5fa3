"""What the studies share: stored runs and their command line."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

import scansnap as ss

FOLDER = Path("results") / "studies"
"""Where runs and pictures are written."""

SYN_SMALL = ss.PUBLISHED["syn-small"].options
"""The setting of Figure 4, which several studies change."""


def read_text(text: Any) -> Any:
    """The corpus of a path or a name; a corpus is returned as it is."""
    return ss.read_corpus(text) if isinstance(text, str | Path) else text


def stored_training(corpus: Any, options: Any, folder: Path | None) -> Any:
    """The training of these options, stored in a folder under a name of its own, so that it can resume."""
    digest = hashlib.blake2b(repr((corpus.fingerprint, options)).encode(), digest_size=8).hexdigest()
    return ss.text_training(
        corpus, **vars(options), store=None if folder is None else folder / f"{corpus.name}-{digest}.zarr"
    )


def updates_per_pass(corpus: Any, *, batch_size: int, window: int) -> int:
    """The number of updates in one pass of `train_text` over the training text."""
    return (len(corpus.train) // batch_size - 1) // window


def with_options(dataset: xr.Dataset, options: Mapping[str, Any]) -> xr.Dataset:
    """The dataset with the options it was made with among its attributes."""
    return dataset.assign_attrs(options=json.dumps(dict(options)))


def command(figure: ss.FigureRecipe) -> None:
    """Make the figure of a study from a text, print its statements and save its picture."""
    parser = argparse.ArgumentParser(description=figure.title)
    parser.add_argument("text", help="a text file, a folder of text files, or a name that read_corpus knows")
    parser.add_argument("--num-seeds", type=int)
    parser.add_argument("--steps", type=int, help="updates of each run")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    options = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    dataset = figure.make(**options)
    for trend in figure.trends(dataset):
        print(f"{trend.verdict}: {trend.statement} {trend.measured_text} ({trend.note})")
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.draw(dataset).savefig(FOLDER / f"{figure.name}.png", dpi=120)
    print(f"picture: {FOLDER / figure.name}.png")
