"""Quantities of a user's own: in training, flows, sweeps, stores and resumption, and what is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import xarray as xr

import scansnap as ss
from tests.data.test_source import Bursts
from tests.dynamics.interruption import train_interrupted

pytestmark = pytest.mark.rounding

OPTIONS: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 12, "batch_size": 8, "seq_len": 16}


@ss.quantity("layer", "head", "class", needs="attention", long_name="tokens attended to", units="tokens")
def effective_tokens(now: ss.Snapshot) -> np.ndarray:
    return 1 / (now.attention**2).sum(-1)


@ss.quantity("moment", needs=("loss", "attention_logits"), coords={"moment": ["first", "second"]}, full_precision=True)
def moments(now: ss.Snapshot) -> np.ndarray:
    z = now.attention_logits.reshape(len(now.loss), -1).astype(np.float64)
    return np.stack([z.mean(1) + now.loss, (z**2).mean(1) + now.loss], 1)


def effective(attention: xr.DataArray) -> xr.DataArray:
    return 1 / (attention.astype(np.float64) ** 2).sum("token")


def same(first: xr.Dataset, second: xr.Dataset) -> bool:
    return all(np.array_equal(first[name], second[name], equal_nan=True) for name in first.data_vars)


def check_numbers(found: xr.Dataset, tolerance: float) -> None:
    """Against the same numbers from what else was recorded."""
    np.testing.assert_allclose(found["effective_tokens"], effective(found["attention"]), rtol=tolerance)
    z = found["attention_logits"].astype(np.float64)
    inner = ("layer", "head", "query", "token")
    for name, values in (("first", z.mean(inner)), ("second", (z**2).mean(inner))):
        np.testing.assert_allclose(found["moments"].sel(moment=name), values + found["loss"], rtol=tolerance)


RECORD = (moments, "attention", "loss", effective_tokens, "attention_logits")


def test_in_training() -> None:
    result = ss.train(ss.syn_small(), **OPTIONS, seeds=[0, 1], record=RECORD)
    assert list(result.data_vars) == ["loss", "attention", "attention_logits", "moments", "effective_tokens"]
    assert result["effective_tokens"].dims == ("run", "step", "layer", "head", "class")
    assert result["effective_tokens"].attrs == {"long_name": "tokens attended to", "units": "tokens"}
    assert result["moments"].dims == ("run", "step", "moment")
    assert result["moments"].attrs == {"long_name": "moments", "units": "1"}
    assert result["moment"].values.tolist() == ["first", "second"]
    assert (result["effective_tokens"].dtype, result["moments"].dtype) == (np.float32, np.float64)
    check_numbers(result, 1e-5)
    alone = ss.train(ss.syn_small(), **OPTIONS, seeds=1, record=RECORD)
    np.testing.assert_array_equal(alone["moments"].values[0], result["moments"].values[1])
    np.testing.assert_array_equal(alone["effective_tokens"].values[0], result["effective_tokens"].values[1])


def test_of_several_layers_and_heads() -> None:
    options = {**OPTIONS, "steps": 2, "init": "uniform", "record": ("attention", effective_tokens)}
    for shape, sizes in (({"layers": 2}, (2, 1)), ({"heads": 3}, (1, 3))):
        result = ss.train(ss.syn_small(), **options, **shape)
        assert result["effective_tokens"].shape == (1, 3, *sizes, 2)
        np.testing.assert_allclose(result["effective_tokens"], effective(result["attention"]), rtol=1e-5)


def test_in_a_flow() -> None:
    result = ss.flow(ss.syn_small(), lr_y=1.0, lr_z=1.0, times=[0, 1, 100], record=RECORD)
    assert result["moments"].dims == ("run", "time", "moment")
    assert result["effective_tokens"].dtype == np.float64
    check_numbers(result, 1e-12)


def test_in_a_sweep(tmp_path) -> None:
    options = {**OPTIONS, "seeds": [0, 1], "record": RECORD}
    result = ss.sweep(ss.syn_small(), **options, momentum=[0.0, 0.9], shard_size=1, store=tmp_path / "s.zarr")
    assert result["moments"].dims == ("momentum", "lr_z", "lr_y", "seed", "step", "moment")
    assert result["moment"].values.tolist() == ["first", "second"]
    alone = ss.train(ss.syn_small(), **options, momentum=0.9, record_every=None)
    np.testing.assert_array_equal(result["moments"].sel(momentum=0.9).values[0, 0], alone["moments"])
    assert same(result, ss.sweep(ss.syn_small(), **options, momentum=[0.0, 0.9]))
    # Over classes of other tokens, what has no tokens can be recorded, with its coordinates.
    both = ss.sweep(["syn-small", "syn-medium-3"], **{**options, "record": (moments, effective_tokens)})
    assert both["moment"].values.tolist() == ["first", "second"]
    np.testing.assert_array_equal(both["moments"].sel(classes="syn-small"), result["moments"].sel(momentum=0.0))
    assert both["effective_tokens"].sizes["class"] == 6
    assert both["effective_tokens"].sel(classes="syn-small").isel({"class": slice(2, None)}).isnull().all()
    assert both["effective_tokens"].sel(classes="syn-medium-3").notnull().all()


def test_an_interrupted_run_goes_on(tmp_path) -> None:
    """With a source of the user's own too."""
    path, source = tmp_path / "run.zarr", Bursts(ss.syn_small())
    options = {**OPTIONS, "seeds": [0, 1], "record": RECORD}
    expected = ss.train(source, **options)
    assert same(expected, train_interrupted(source, path, advances=5, **options).load())
    opened = xr.open_zarr(path, chunks=None)
    assert opened["moment"].values.tolist() == ["first", "second"]
    assert opened["effective_tokens"].attrs["units"] == "tokens"
    with pytest.raises(ss.StoreError, match="holds another run, with record"):
        ss.train(source, **{**options, "record": RECORD[1:]}, store=path)
    for other in (ss.syn_small(), Bursts(ss.syn_small(), 4), Bursts(ss.syn_medium(num_query=1))):
        with pytest.raises(ss.StoreError, match="holds a run on other data"):
            ss.train(other, **options, store=path)


def test_a_finished_run_is_not_computed_again(tmp_path) -> None:
    calls = []

    @ss.quantity(needs="loss")
    def counted(now: ss.Snapshot) -> np.ndarray:
        calls.append(1)
        return now.loss

    for _ in range(2):
        result = ss.train(ss.syn_small(), **OPTIONS, record=("loss", counted), store=tmp_path / "run.zarr")
        np.testing.assert_allclose(result["counted"], result["loss"], rtol=1e-6)
    assert len(calls) == 13  # one for each record of the first time


def test_a_diverged_run_has_none() -> None:
    result = ss.train(ss.syn_small(), **{**OPTIONS, "lr_y": [1.0, 1e39]}, record=("loss", effective_tokens))
    assert result["status"].values.tolist() == ["ok", "diverged"]
    lost = result["loss"].isnull().values
    assert lost[1].any()
    assert np.array_equal(np.isnan(result["effective_tokens"].values[:, :, 0, 0, 0]), lost)


def test_a_quantity_can_have_a_name(monkeypatch) -> None:
    monkeypatch.setattr(ss.QUANTITIES, "_makers", {**ss.QUANTITIES})
    ss.QUANTITIES.register("effective_tokens")(effective_tokens)
    ss.QUANTITIES.register("spread")(lambda: effective_tokens)
    named = ss.train(ss.syn_small(), **OPTIONS, record=("effective_tokens", "loss"))
    assert same(named, ss.train(ss.syn_small(), **OPTIONS, record=("loss", effective_tokens)))
    assert same(named, ss.train(ss.syn_small(), **OPTIONS, record=("loss", "spread")))


def quantity(name: str = "own", dims: tuple[str, ...] = (), shape: tuple[int, ...] = (), **more: Any) -> ss.Quantity:
    """One that gives zeros of a shape."""
    return ss.Quantity(name, dims, lambda now: np.zeros((len(now.loss), *shape)), needs=("loss",), **more)


def test_a_wrong_shape_is_one_sentence() -> None:
    wrong = quantity(dims=("class", "token"), shape=(30, 2))
    for make in (
        lambda: ss.train(ss.syn_small(), **OPTIONS, record=wrong),
        lambda: ss.sweep(ss.syn_small(), **OPTIONS, record=wrong),
        lambda: ss.flow(ss.syn_small(), lr_y=1.0, lr_z=1.0, times=[1], record=wrong),
    ):
        with pytest.raises(ss.InputError) as caught:
            make()
        assert str(caught.value) == (
            "the quantity own has shape (1, 30, 2) for 1 runs, but its dimensions class, token have (1, 2, 30)."
        )
    with pytest.raises(ss.InputError, match=r"own has shape \(1, 1\) for 1 runs, but its dimensions \(none\) have"):
        ss.train(ss.syn_small(), **OPTIONS, record=quantity(shape=(1,)))


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ((quantity("loss"),), "^two quantities are called 'loss': give yours another name"),
        (("loss", quantity(), quantity()), "^two quantities are called 'own': give yours another name"),
        ((quantity("seed"),), "^'seed' is a coordinate of this result"),
        ((quantity("status"),), "^'status' is a coordinate of this result"),
        ((quantity("step"),), "^'step' is a coordinate of this result"),
        (("attention", quantity("token")), "^'token' is a coordinate of this result"),
        ((quantity(dims=("step",), shape=(2,), coords={"step": [1, 2]}),), "^'step' is a coordinate of this result"),
        ((quantity(dims=("seed",), shape=(2,), coords={"seed": [1, 2]}),), "^'seed' is a coordinate of this result"),
        ((quantity(dims=("class",), shape=(3,), coords={"class": [1, 2, 3]}),), "gives 'class' values that differ"),
        (
            (quantity("a", ("x",), (2,), coords={"x": [1, 2]}), quantity("b", ("x",), (2,), coords={"x": [3, 4]})),
            "^the quantity b gives 'x' values that differ from those in this result",
        ),
    ],
)
def test_a_clash_of_names_is_one_sentence(tmp_path, record: Any, sentence: str) -> None:
    for store in (None, tmp_path / "run.zarr"):
        with pytest.raises(ss.InputError, match=sentence):
            ss.train(ss.syn_small(), **OPTIONS, record=record, store=store)
        with pytest.raises(ss.InputError, match=sentence):
            ss.sweep(ss.syn_small(), **OPTIONS, record=record, store=store)
    assert list(tmp_path.iterdir()) == []


def test_axes_of_a_sweep_have_their_names_to_themselves() -> None:
    result = ss.sweep(ss.syn_small(), **OPTIONS, record=quantity("momentum"))  # no axis, and so no clash
    assert result["momentum"].dims == ("lr_z", "lr_y", "seed", "step")
    for record in (quantity("momentum"), quantity(dims=("momentum",), shape=(1,), coords={"momentum": [1]})):
        with pytest.raises(ss.InputError, match=r"^'momentum' is a coordinate of this result"):
            ss.sweep(ss.syn_small(), **OPTIONS, momentum=[0.0, 0.9], record=record)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: ss.quantity(needs="atention")(effective_tokens.compute),
            "^unknown need of the quantity effective_tokens 'atention': did you mean 'attention'",
        ),
        (
            lambda: ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=1, record=(quantity(dims=("clas",)),)),
            "^the quantity own has the dimension 'clas', which results do not have: use layer, head, .* in coords",
        ),
        (lambda: quantity(dims=("class", "class")), "^the quantity own has a dimension twice"),
        (lambda: quantity("two words"), "^a quantity is called 'two words': give it a name of letters"),
        (lambda: ss.quantity(needs="loss")(lambda now: now.loss), "^a quantity is called '<lambda>'"),
    ],
)
def test_what_cannot_be_a_quantity(make: Any, sentence: str) -> None:
    with pytest.raises(ss.InputError, match=sentence):
        make()


def test_needs_that_a_run_does_not_have() -> None:
    def of(need: Any) -> ss.Quantity:
        return ss.Quantity("own", (), lambda now: np.zeros(len(now.loss)), needs=(need,))

    for need, layer in (
        ("decoder", {"layers": 2}),
        ("fresh_loss", {"layers": 2}),
        ("query_decoder", {}),
        ("position_bias", {}),
    ):
        with pytest.raises(ss.InputError, match=r"^own cannot be recorded: "):
            ss.train(ss.syn_small(), **OPTIONS, **layer, record=of(need))
    with pytest.raises(ss.InputError, match=r"^own cannot be recorded: flow has no batches"):
        ss.flow(ss.syn_small(), lr_y=1.0, lr_z=1.0, times=[1], record=of("fresh_accuracy"))


@pytest.mark.parametrize("part", ["decoder", "fresh_loss", "position_bias"])
def test_what_is_read_must_be_named(part: str) -> None:
    careless = ss.Quantity("own", (), lambda now: getattr(now, part).sum(-1), needs=("loss",))
    with pytest.raises(ss.InputError, match=f"^a quantity reads {part}, which is not available: name it in .* needs"):
        ss.train(ss.syn_small(), **OPTIONS, record=careless)


@pytest.mark.parametrize("record", [3, (3, "loss"), ("loss", lambda now: now.loss), None, ()])
def test_what_cannot_be_recorded(record: Any) -> None:
    with pytest.raises(ss.InputError, match=r"^record (is|holds) .*: give (names|quantities)"):
        ss.train(ss.syn_small(), **OPTIONS, record=record)


@pytest.mark.parametrize("values", [["a"], [1j], [None]], ids=str)
def test_numbers_that_are_not_real_are_refused(values: list[Any]) -> None:
    wrong = ss.Quantity("own", (), lambda now: np.array(values), needs=("loss",))
    with pytest.raises(ss.InputError, match=r"^the quantity own gives .* values: give real numbers\.$"):
        ss.train(ss.syn_small(), **OPTIONS, record=wrong)


@pytest.mark.parametrize("need", ["loss", "attention", "attention_logits", "decoder"])
def test_a_quantity_cannot_change_what_others_see(need: Any) -> None:
    def spoil(now: ss.Snapshot) -> np.ndarray:
        getattr(now, need)[:] = 0
        return now.loss

    recorded = [need, ss.Quantity("own", (), spoil, needs=("loss", need))]
    with contextlib.suppress(ValueError):  # an array that is read-only
        spoiled = ss.train(ss.syn_small(), **OPTIONS, record=recorded)[need]
        np.testing.assert_array_equal(spoiled, ss.train(ss.syn_small(), **OPTIONS, record=need)[need])
