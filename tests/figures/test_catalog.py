"""What all figures have in common: an interface, readable pictures, datasets that can be stored."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.figures import catalog
from tests.figures.conftest import check_figure

OWN = Path(__file__).with_name("own_figure.py")


@pytest.mark.parametrize("name", catalog.SYNTHETIC)
def test_a_figure_is_drawn_and_tested(name: str, prepare) -> None:
    recipe = catalog.recipe(name)
    assert all(isinstance(words, str) and words for words in (recipe.title, recipe.statement, recipe.setting))
    figure = check_figure(recipe, prepare(name))
    drawn = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    for axes in drawn:  # what an inner panel leaves out is on the outer one of its row or column
        row, column = axes.get_subplotspec().rowspan, axes.get_subplotspec().colspan
        assert any(other.get_xlabel() for other in drawn if other.get_subplotspec().colspan == column)
        assert any(other.get_ylabel() for other in drawn if other.get_subplotspec().rowspan == row)


@pytest.mark.parametrize("name", ["2", "6", "8"])
def test_a_dataset_says_what_it_is_and_can_be_stored(name: str, prepare, tmp_path) -> None:
    dataset = prepare(name)
    assert dataset.attrs["seconds"] >= 0
    assert {"kind", "options", "commit", "version_numpy"} <= set(dataset.attrs)
    again = ss.load(ss.save(dataset, tmp_path / "figure.zarr"))
    assert again.equals(dataset)
    assert catalog.recipe(name).trends(again) == catalog.recipe(name).trends(dataset)


def test_numbers_are_what_is_drawn(prepare) -> None:
    dataset = prepare("6")
    numbers = catalog.numbers(dataset)
    assert "entropy" not in numbers  # seed by seed
    assert numbers["entropy_mean"] == numbers["mean"]
    assert numbers["mean"]["dimensions"] == ["num_query", "lr_z", "lr_y_over_lr_z"]
    assert numbers["mean"]["axes"]["num_query"] == [1, 3, 5, 10]
    assert numbers["mean"]["values"][0][0][0] == float(dataset["mean"][0, 0, 0])
    json.dumps(numbers, allow_nan=False)


def test_the_catalog_has_every_figure() -> None:
    folder = Path(catalog.__file__).parent
    modules = [path for path in folder.rglob("*.py") if re.search(r"^FIGURE\w* = ", path.read_text(), re.MULTILINE)]
    names = {".".join(path.relative_to(folder).with_suffix("").parts) for path in modules}
    assert names == set(catalog.MODULES.values())
    others = {"joma", "reversal", "selection", "next_token", "sinks"}
    assert set(catalog.own_paper_recipes()) == others
    assert [catalog.recipe(name).name for name in (*catalog.MODULES, *others)] == [*catalog.MODULES, *others]


def test_a_figure_from_python() -> None:
    result = ss.figure("fig_9")
    assert result.recipe is catalog.recipe("9")
    assert result.trends == result.recipe.trends(result.dataset)
    assert result.picture.get_suptitle().startswith("Figure 9")
    for name, option in (("9", "num_seeds"), ("8", "steps")):
        with pytest.raises(ss.InputError, match=f"figure {name} does not use {option}: leave it out"):
            ss.figure(name, **{option: 3})


def test_a_user_s_figure_is_made_like_one_of_the_package(tmp_path) -> None:
    own = ss.figure(catalog.recipe_from(OWN, "own"), num_seeds=3)
    assert own.dataset.attrs["title"] == "Loss of Syn-Small"
    assert json.loads(own.dataset.attrs["options"])["num_seeds"] == own.dataset.sizes["seed"] == 3
    assert ss.load(ss.save(own.dataset, tmp_path / "own.zarr")).equals(own.dataset)
    assert own.trends[0].holds


def test_refusals(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty.py").write_text("")
    recipe = catalog.recipe("9")
    for message, call in {
        "unknown figure '99': choose one of 2, .*, joma, ": lambda: catalog.recipe("99"),
        "num_seeds is 1: give a whole number from 2 to 10,000": lambda: catalog.recipe("2").prepare(num_seeds=1),
        "cannot write": lambda: catalog.save_picture(recipe.draw(recipe.prepare()), tmp_path / "file" / "x.png"),
        "the name of a figure is 'a/b': use letters": lambda: replace(recipe, name="a/b"),
        r"unknown figure of .*own_figure\.py 'mine': choose one of own": lambda: catalog.recipe_from(OWN, "mine"),
        "cannot read the file": lambda: catalog.recipe_from(tmp_path / "nowhere.py", "own"),
        r"empty\.py holds no figure: assign": lambda: catalog.recipe_from(tmp_path / "empty.py", "own"),
    }.items():
        with pytest.raises(ss.ScanSnapError, match=message):
            call()
