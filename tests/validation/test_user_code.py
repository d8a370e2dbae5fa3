"""The digest of a user's code changes with what the code does, and with nothing else."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import scansnap as ss
from scansnap.validation.user_code import code_digest, is_own, run_user_file

PARTS = """
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import scansnap as ss

FACTOR = 2.0
TABLE = np.array([1.0, 2.0])


def scaled(x):
    return FACTOR * x


@dataclass(frozen=True)
class Part:
    power: float = 1.0
    memory = ("velocity",)

    @property
    def half(self):
        return self.power / 2

    @cached_property
    def quarter(self):
        return self.power / 4

    def move(self, update):
        def inner(x):
            return scaled(x)
        return inner(update) * TABLE[0]


@ss.quantity(needs="loss")
def doubled(now):
    return 2 * now.loss


class Source(ss.DataSource):
    classes = property(lambda self: ss.syn_small())

    def draw(self, *, seeds, step, num_sequences, length):
        return self.classes.draw(seeds=seeds, step=step, num_sequences=num_sequences, length=length)
"""

EDITS = {
    "a helper": ("FACTOR * x", "x - FACTOR"),
    "a constant that the helper uses": ("FACTOR = 2.0", "FACTOR = 3.0"),
    "an array": ("np.array([1.0, 2.0])", "np.array([1.0, 3.0])"),
    "a default": ("power: float = 1.0", "power: float = 2.0"),
    "an attribute of the class": ('memory = ("velocity",)', "memory = ()"),
    "a property": ("self.power / 2", "self.power / 3"),
    "a cached property": ("self.power / 4", "self.power / 3"),
    "an inner function": ("return scaled(x)", "return -scaled(x)"),
    "the method": ("* TABLE[0]", "* TABLE[1]"),
}


def _part(folder: Path, text: str) -> ModuleType:
    file = folder / "parts.py"
    file.write_text(text)
    sys.modules.pop(f"<{file}>", None)
    linecache.clearcache()  # two edits may have the same size and time
    return run_user_file(file)


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_changes_the_digest(tmp_path: Path, edit: str) -> None:
    before, after = EDITS[edit]
    assert before in PARTS
    digest = code_digest(_part(tmp_path, PARTS).Part())
    assert digest != code_digest(_part(tmp_path, PARTS.replace(before, after)).Part())
    assert digest == code_digest(_part(tmp_path, PARTS).Part())


def test_comments_layout_and_what_is_not_used_do_not_matter(tmp_path: Path) -> None:
    digest = code_digest(_part(tmp_path, PARTS).Part())
    other = PARTS.replace("FACTOR * x", "(FACTOR\n        * x)  # twice").replace("2 * now.loss", "3 * now.loss")
    assert digest == code_digest(_part(tmp_path, other).Part())


def test_the_packages_own_parts_have_no_digest() -> None:
    assert not is_own(ss.SGD())
    assert not is_own(ss.syn_small())
    options = ss.TrainOptions(
        lr_y=1.0, lr_z=1.0, steps=2, optimizer=ss.SGD(momentum=0.5), residual=True, record=tuple(ss.QUANTITIES)
    )
    assert "code" not in options.to_dict()


def test_a_store_is_not_continued_with_other_code(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    sweeping = tmp_path / "sweep.zarr"

    def run(text: str) -> tuple[np.ndarray, np.ndarray]:
        parts = _part(tmp_path, text)
        options = {"lr_y": 1.0, "lr_z": 1.0, "steps": 3, "record": ("loss", parts.doubled)}
        alone = ss.train(parts.Source(), **options, store=store)
        grid = ss.sweep(parts.Source(), **options, batch_size=[4, 8], store=sweeping)
        return alone["doubled"].values, grid["doubled"].values

    first = run(PARTS)
    for once, again in zip(first, run(PARTS.replace("2 * now.loss", "2 * now.loss  # twice")), strict=True):
        np.testing.assert_array_equal(once, again)
    with pytest.raises(ss.StoreError, match=r"run\.zarr was begun with other code of the quantity doubled: undo"):
        run(PARTS.replace("2 * now.loss", "3 * now.loss"))
    with pytest.raises(
        ss.StoreError, match=r"run\.zarr holds a run on other data: give the same classes, and your own"
    ):
        run(PARTS.replace("length=length)", "length=length + 1)"))
    store.rename(tmp_path / "elsewhere.zarr")
    with pytest.raises(ss.StoreError, match=r"sweep\.zarr was begun with other code of the quantity doubled"):
        run(PARTS.replace("2 * now.loss", "3 * now.loss"))
