"""The numbers of figures that are done, kept beside the page until it is written: an interrupted page goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import xarray as xr

from scansnap.figures import catalog
from scansnap.figures.recipe import FigureRecipe
from scansnap.results.provenance import store_name
from scansnap.results.store import load, save
from scansnap.runtime.errors import StoreError
from scansnap.runtime.source_stamp import source_stamp


class KeptFigures:
    """A folder of results, one for each figure; while it is there, the pictures beside it are ours."""

    def __init__(self, page_folder: Path) -> None:
        self.folder = page_folder / "unfinished"

    def begin(self) -> None:
        """Make the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def made(self, recipe: FigureRecipe, options: Mapping[str, Any], make: Callable[[], xr.Dataset]) -> xr.Dataset:
        """The dataset of a figure: the one kept for the same options and the same code, or a new one."""
        if recipe.name not in catalog.MODULES or catalog.recipe(recipe.name) is not recipe or find_spec("zarr") is None:
            return make()  # a user's own code can change without notice
        code = source_stamp(f"scansnap.figures.{catalog.MODULES[recipe.name]}")
        path = self.folder / store_name(recipe.name, {**options, "code": code})
        if path.exists():
            try:
                return load(path)
            except StoreError:
                shutil.rmtree(path)
        dataset = make()
        save(dataset, path)
        return dataset

    def clear(self) -> None:
        """Remove the folder: the page is there."""
        shutil.rmtree(self.folder, ignore_errors=True)
