"""What all figures have in common: an interface, readable pictures, datasets that can be stored."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text

import scansnap as ss
from scansnap.figures import catalog
from scansnap.figures.recipe import FigureRecipe

OWN = Path(__file__).with_name("own_figure.py")


@pytest.mark.parametrize("name", catalog.SYNTHETIC)
def test_a_figure_is_drawn_and_tested(name: str, prepare, tmp_path) -> None:
    recipe = catalog.recipe(name)
    assert all(isinstance(words, str) and words for words in (recipe.title, recipe.statement, recipe.setting))
    dataset = prepare(name)
    before = dataset.copy(deep=True)
    figure = recipe.draw(dataset)
    trends = recipe.trends(dataset)
    assert dataset.identical(before)  # neither changes what it is given
    png, pdf = catalog.save(figure, tmp_path / f"figure_{name}")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    for trend in trends:
        assert np.isfinite(trend.measured)
        assert trend.note
        json.dumps(trend.as_dict(), allow_nan=False)


@pytest.mark.parametrize("name", catalog.SYNTHETIC)
def test_a_picture_can_be_read_in_print(name: str, prepare) -> None:
    figure = catalog.recipe(name).draw(prepare(name))
    figure.draw_without_rendering()
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert min(sizes) >= 7
    drawn = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    for axes in drawn:  # what an inner panel leaves out is on the outer one of its row or column
        row, column = axes.get_subplotspec().rowspan, axes.get_subplotspec().colspan
        below = [other for other in drawn if other.get_subplotspec().colspan == column]
        beside = [other for other in drawn if other.get_subplotspec().rowspan == row]
        assert any(other.get_xlabel() for other in below)
        assert any(other.get_ylabel() for other in beside)


@pytest.mark.parametrize("name", ["2", "6", "8", "heads"])
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
    assert numbers["mean"]["dimensions"] == ["num_query", "lr_z", "lr_y_over_lr_z"]
    assert numbers["mean"]["axes"]["num_query"] == [1, 3, 5, 10]
    assert numbers["mean"]["values"][0][0][0] == float(dataset["mean"][0, 0, 0])
    assert numbers["score"]["values"][3][0][0] is None  # nothing was published for ten queries
    json.dumps(numbers, allow_nan=False)


def test_the_catalog_has_every_figure() -> None:
    folder = Path(catalog.__file__).parent
    modules = [path for path in folder.rglob("*.py") if re.search(r"^FIGURE\w* = ", path.read_text(), re.MULTILINE)]
    names = {".".join(path.relative_to(folder).with_suffix("").parts) for path in modules}
    assert names == set(catalog.MODULES.values())
    assert [catalog.recipe(name).name for name in catalog.MODULES] == list(catalog.MODULES)


def test_a_user_s_figure_is_made_like_one_of_the_package(tmp_path) -> None:
    recipe = catalog.recipe_from(OWN, "own")
    assert catalog.recipe(recipe) is recipe
    assert [catalog.heading(name) for name in ("own", "6")] == ["Figure own", "Figure 6"]
    assert catalog.heading("heads") == "Beyond the basic setting"
    dataset = recipe.make(num_seeds=3)
    assert dataset.attrs["title"] == "Loss of Syn-Small"
    assert json.loads(dataset.attrs["options"])["num_seeds"] == 3
    assert ss.load(ss.save(dataset, tmp_path / "own.zarr")).equals(dataset)
    assert recipe.trends(dataset)[0].holds


def test_a_figure_from_python() -> None:
    result = ss.figure("fig_9")
    assert result.recipe is catalog.recipe("9")
    assert result.trends == result.recipe.trends(result.dataset)
    assert result.picture.get_suptitle().startswith("Figure 9")
    own = ss.figure(catalog.recipe_from(OWN, "own"), num_seeds=3)
    assert own.dataset.sizes["seed"] == 3
    with pytest.raises(ss.InputError, match="figure 9 does not use num_seeds: leave it out"):
        ss.figure("9", num_seeds=3)


def test_refusals(tmp_path) -> None:
    with pytest.raises(ss.InputError, match="unknown figure '99': "):
        catalog.recipe("99")
    with pytest.raises(ss.InputError, match="num_seeds is 1: give a whole number from 2 to 10,000"):
        catalog.recipe("2").prepare(num_seeds=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ss.InputError, match="cannot write the picture"):
        catalog.save(catalog.recipe("9").draw(catalog.recipe("9").prepare()), tmp_path / "file" / "x")
    with pytest.raises(ss.InputError, match="the name of a figure is 'a/b': use letters"):
        FigureRecipe(name="a/b", title="", statement="", setting="", prepare=dict, draw=dict, trends=dict)


def test_refusals_of_a_user_s_file(tmp_path) -> None:
    with pytest.raises(ss.InputError, match=r"unknown figure of .*own_figure\.py 'mine': choose one of own"):
        catalog.recipe_from(OWN, "mine")
    for file in (tmp_path / "nowhere.py", tmp_path):
        with pytest.raises(ss.InputError, match="cannot read the file"):
            catalog.recipe_from(file, "own")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ss.InputError, match=r"empty\.py holds no figure: assign a FigureRecipe"):
        catalog.recipe_from(tmp_path / "empty.py", "own")


def test_figures_without_chance_have_no_seeds() -> None:
    without = [name for name in catalog.SYNTHETIC if not catalog.recipe(name).takes("num_seeds")]
    assert without == ["3", "8", "9", "phase_diagram"]
