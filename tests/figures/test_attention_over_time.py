"""The picture of attention over time: prepared data, and a drawing that does not compute."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import scansnap as ss
from scansnap.figures import attention_over_time
from scansnap.figures.style import widen_axis
from scansnap.results.story import stories
from tests.figures.conftest import check_picture


def test_prepare_takes_one_run_and_few_classes() -> None:
    ds = ss.train(ss.syn_medium(num_query=3), lr_y=1.0, lr_z=1.0, steps=4, seeds=[0, 1])
    prepared = attention_over_time.prepare(ds, run=1)
    assert prepared.sizes["class"] == attention_over_time.MOST_CLASSES
    assert prepared.attrs["num_classes"] == 6
    assert int(prepared["seed"]) == 1


@pytest.mark.parametrize(("kind", "scale"), [("train", "linear"), ("flow", "log")])
def test_draw_shows_the_numbers(kind: str, scale: str) -> None:
    """Colors follow the square root of attention, updates are linear and times logarithmic."""
    if kind == "train":
        ds = ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=10, momentum=0.9)
    else:
        ds = ss.flow(ss.syn_small(), lr_y=1.0, lr_z=1.0, times=[0, 1, 1e3])
    prepared = attention_over_time.prepare(ds)
    axes = attention_over_time.draw(prepared).axes
    heatmap = axes[0].collections[0]
    shown = np.asarray(heatmap.get_array()).reshape(20, -1)
    expected = prepared["attention"].isel({"class": 0}).values[:, :20].T
    assert np.allclose(shown, expected[:, 1:] if kind == "flow" else expected)  # log time has no zero
    assert heatmap.norm(0.25 * heatmap.norm.vmax) == pytest.approx(0.5)
    assert heatmap.norm.vmax == float(ds["attention"].max())
    assert {panel.get_xscale() for panel in axes if panel.get_xlabel().startswith(("updates", "time"))} == {scale}


@pytest.mark.parametrize(("part", "options"), [("head", {"heads": 2, "init": "uniform"}), ("layer", {"layers": 2})])
def test_several_heads_or_layers_have_a_panel_each(part: str, options: dict) -> None:
    ds = ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=2, batch_size=8, **options)
    prepared = attention_over_time.prepare(ds)
    names = [f"{token}, {part} {i}" for token in (32, 33) for i in range(2)]
    assert prepared["next_token_name"].values.tolist() == names
    attention = prepared["attention"].isel({"class": 3}).values
    assert np.array_equal(attention, ds["attention"].isel({"run": 0, "class": 1, part: 1}).squeeze().values)
    titles = [axes.get_title(loc="left") for axes in attention_over_time.draw(prepared).axes]
    for i, title in enumerate(titles[:2]):
        assert title.startswith(f"next token 32, {part} {i}, query 30\nattends most to ")
        assert title.endswith("; no snap")


def test_it_marks_scan_and_snap_and_names_winners() -> None:
    ds = ss.train(ss.syn_small(), lr_y=[1.0, 5.0, 2.0], lr_z=[1.0, 10.0, 1.0], steps=60, momentum=0.9)
    figure = ss.plot.attention(ds, run=1)
    check_picture(figure)
    story = stories(ds.isel(run=[1]))[0]
    froze = ss.measure.snaps(ds)["snap_step"].max(("layer", "head"))
    assert "= 5, $η_{Z}$ = 10, momentum 0.9, seed 0; run 1" in figure.get_suptitle()
    assert story.scan.replace(" on: ", " on (dashed): ") in figure.get_suptitle()
    first, last = (getattr(froze.max("class"), name)() for name in ("min", "max"))
    assert f"3 of 3 runs have snapped, between step {first:g} and step {last:g}" in figure.get_suptitle()
    for axes, winner, step in zip(figure.axes[:2], story.winners, froze.isel(run=1).values, strict=True):
        title = axes.get_title(loc="left")
        assert f"attends most to {winner.token} ({winner.share:.0%}); snapped at step {step:g} (dotted)" in title
        marks = {line.get_linestyle(): line.get_xdata()[0] for line in axes.lines if line.get_linestyle() != "-"}
        assert marks == {"--": story.scan_step, ":": step}
    loss = next(axes for axes in figure.axes if axes.get_title(loc="left") == "loss")
    for line, run in zip(loss.lines, (0, 2, 1), strict=True):
        assert np.array_equal(line.get_ydata(), ds["loss"].isel(run=run).values)
    early = ss.plot.attention(ds.isel(step=slice(2)))
    assert "none of 3 runs has snapped" in early.get_suptitle()
    assert "dashed" not in early.get_suptitle()


def test_what_slid_back_is_said_to_have_slowed() -> None:
    probs = [[0.4, 0.3, 0.2, 0.1, 0, 0, 0, 0, 0], [0.4, 0.3, 0, 0, 0.2, 0.1, 0, 0, 0]]
    pets = ss.SequenceClasses(probs=probs, query=[6, 6], next_token=[7, 8], vocab_size=9)
    figure = ss.plot.attention(ss.train(pets, lr_y=1.0, lr_z=1.0, momentum=0.9, steps=2000, record_every=10))
    for axes in figure.axes[:2]:
        assert "; slowed at step" in axes.get_title(loc="left")
        assert axes.get_title(loc="left").endswith("% moved since")


def test_classes_without_distinct_tokens_have_no_empty_panel() -> None:
    probs = [[0.6, 0.3, 0.1, 0, 0, 0, 0], [0.1, 0.3, 0.6, 0, 0, 0, 0]]
    dense = ss.SequenceClasses(probs=probs, query=[3, 4], next_token=[5, 6], vocab_size=7)
    figure = ss.plot.attention(ss.train(dense, lr_y=1.0, lr_z=1.0, steps=8))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert "entropy on favored tokens" in titles
    for axes in figure.axes:
        for line in axes.lines:
            assert np.isfinite(np.asarray(line.get_ydata(), float)).all()
    alike = ss.SequenceClasses(probs=[probs[0]] * 2, query=[3, 4], next_token=[5, 6], vocab_size=7)
    figure = ss.plot.attention(ss.train(alike, lr_y=1.0, lr_z=1.0, steps=8))
    assert not any("entropy" in axes.get_title(loc="left") for axes in figure.axes)
    assert "no token tells the next tokens apart" in figure.get_suptitle()


def test_a_small_change_does_not_fill_an_axis() -> None:
    axes = Figure().add_subplot()
    axes.plot([0, 1], [1.4195, 1.4170])
    widen_axis(axes)
    low, high = axes.get_ylim()
    assert high - low >= 0.099 * 1.4195
    assert low < 1.4170 < 1.4195 < high
    axes = Figure().add_subplot()
    axes.plot([0, 1], [1.4, 0.9])
    before = axes.get_ylim()
    widen_axis(axes)
    assert axes.get_ylim() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ds: ds[["loss"]], "needs attention, entropy"),
        (lambda ds: ds.isel(step=[0]), "at least two records"),
        (lambda ds: ds.isel(run=0), "give the whole result"),
    ],
)
def test_refusals(change, message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.plot.attention(change(ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=2)))
