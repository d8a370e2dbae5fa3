"""What all figures have in common: an interface, readable pictures, datasets that can be kept."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.text import Text

import scansnap as ss
from scansnap.figures import catalogue


@pytest.mark.parametrize("number", catalogue.SYNTHETIC)
def test_a_figure_is_drawn_and_tested(number: str, prepare, tmp_path) -> None:
    module = catalogue.module(number)
    assert all(isinstance(words, str) and words for words in (module.TITLE, module.STATEMENT, module.SETTING))
    dataset = prepare(number)
    before = dataset.copy(deep=True)
    figure = module.draw(dataset)
    trends = module.trends(dataset)
    assert dataset.identical(before)  # neither changes what it is given
    png, pdf = catalogue.save(figure, tmp_path / f"figure_{number}")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")
    for one in trends:
        assert np.isfinite(one.measured)
        assert one.note
        json.dumps(one.as_dict(), allow_nan=False)


@pytest.mark.parametrize("number", catalogue.SYNTHETIC)
def test_a_picture_can_be_read_in_print(number: str, prepare) -> None:
    figure = catalogue.module(number).draw(prepare(number))
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


@pytest.mark.parametrize("number", ["2", "6", "8", "heads"])
def test_a_dataset_says_what_it_is_and_can_be_kept(number: str, prepare, tmp_path) -> None:
    dataset = prepare(number)
    assert dataset.attrs["seconds"] >= 0
    assert {"kind", "options", "commit", "version_numpy"} <= set(dataset.attrs)
    again = ss.load(ss.save(dataset, tmp_path / "figure.zarr"))
    assert again.equals(dataset)
    assert catalogue.module(number).trends(again) == catalogue.module(number).trends(dataset)


def test_numbers_are_what_is_drawn(prepare) -> None:
    dataset = prepare("6")
    found = catalogue.numbers(dataset)
    assert "entropy" not in found  # seed by seed
    assert found["mean"]["dimensions"] == ["num_query", "lr_z", "lr_y_over_lr_z"]
    assert found["mean"]["axes"]["num_query"] == [1, 3, 5, 10]
    assert found["mean"]["values"][0][0][0] == float(dataset["mean"][0, 0, 0])
    assert found["score"]["values"][3][0][0] is None  # nothing was published for ten queries
    json.dumps(found, allow_nan=False)


def test_refusals(tmp_path) -> None:
    with pytest.raises(ss.InputError, match="unknown figure '99': "):
        catalogue.module("99")
    with pytest.raises(ss.InputError, match="from 2 to 10,000"):
        catalogue.module("2").prepare(seeds=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ss.InputError, match="cannot write the picture"):
        catalogue.save(catalogue.module("9").draw(catalogue.module("9").prepare()), tmp_path / "file" / "x")


def test_formulas_have_no_seeds() -> None:
    assert [number for number in catalogue.NUMBERS if not catalogue.takes(number, "seeds")] == ["3", "8", "9"]
