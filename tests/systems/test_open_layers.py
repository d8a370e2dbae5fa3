"""Parts of a layer that a user brings: LN, the map from logits to attention, what is added."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics.yz_tensors import YZTensorEngine
from scansnap.systems.yz.architecture import L2Normalization, TokenRows
from tests.dynamics.reference import autograd, decoder_of, engine_of, logits_of, random_matrices, relative, start_of

pytestmark = pytest.mark.rounding

OPTIONS: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 6, "batch_size": 8, "seq_len": 16, "dtype": "float64"}
RATE = 2.0**40


class L1:
    spreads = False

    def forward(self, x: torch.Tensor, rows: TokenRows) -> torch.Tensor:
        return x / rows.weigh(x.abs()).sum(-1, keepdim=True)


class Centered:
    """Tokens without a row of their own get -mean."""

    spreads = True

    def forward(self, x: torch.Tensor, rows: TokenRows) -> torch.Tensor:
        return 3 * (x - rows.mean(x))


class Doubled(L2Normalization):
    """Derived from a kind whose gradient is written out, which is not its own."""

    def forward(self, x: torch.Tensor, rows: TokenRows) -> torch.Tensor:
        return 2 * super().forward(x, rows)


@dataclass(frozen=True)
class Power:
    """The softmax of a temperature that also acts on the counts."""

    power: float = 2.0

    def forward(self, z: torch.Tensor, log_a: torch.Tensor) -> torch.Tensor:
        return (self.power * (z + log_a)).softmax(-1)


class WrittenOut(Power):
    """With its gradient."""

    def forward(self, z: torch.Tensor, log_a: torch.Tensor) -> torch.Tensor:
        return super().forward(z, log_a)

    def backward(
        self, z: torch.Tensor, log_a: torch.Tensor, c: torch.Tensor, dc: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        slope = self.power * c * (dc - (c * dc).sum(-1, keepdim=True))
        return slope, slope


class Departed(WrittenOut):
    """Derived from one whose gradient is written out, which is not its own."""

    def forward(self, z: torch.Tensor, log_a: torch.Tensor) -> torch.Tensor:
        return (3 * z + log_a).softmax(-1)


class Square:
    """No softmax at all."""

    def forward(self, z: torch.Tensor, log_a: torch.Tensor) -> torch.Tensor:
        return log_a.exp() * (1 + z) ** 2


class HalfQuery:
    def forward(self, u: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return u + 0.5 * query


BY_AUTOGRAD: list[dict[str, Any]] = [
    {"normalization": L1()},
    {"normalization": Centered()},
    {"normalization": Doubled()},
    {"attention_map": Power()},
    {"attention_map": Square()},
    {"attention_map": Departed()},
    {"residual": HalfQuery()},
    {"normalization": Centered(), "attention_map": Square(), "residual": HalfQuery()},
]
WRITTEN_OUT: list[dict[str, Any]] = [
    {"attention_map": WrittenOut()},
    {"attention_map": WrittenOut(0.5), "normalization": "layer", "residual": True},
]
LAYERS = [*BY_AUTOGRAD, *WRITTEN_OUT]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: ", ".join(type(part).__name__ for part in layer.values()))
def test_training_is_autograd_of_the_plain_model(layer: dict[str, Any]) -> None:
    classes = ss.syn_small()
    decoder, attention = random_matrices(classes, 1)
    sequences, owner = ss.sample_sequences(classes, num=8, seq_len=16, seed=2)
    dy, dz, loss = autograd(classes, decoder, attention, sequences, owner, **layer)
    start: dict[str, Any] = {"init": (decoder, attention), **layer}
    engine = engine_of(YZTensorEngine, classes, lr_y=RATE, lr_z=RATE, seeds=2, **start)
    layout = start_of(classes, **start).layout
    before = logits_of(engine)[0], decoder_of(engine)[0]
    assert engine.advance(1)[0][0, 0] == pytest.approx(loss, rel=1e-12)
    found_z, found_y = (logits_of(engine)[0] - before[0]) / RATE, (decoder_of(engine)[0] - before[1]) / RATE
    assert relative(found_z, dz[classes.queries][:, layout.rows]) < 1e-12
    own = found_y[: len(layout.decoder_tokens), layout.column_of_token]
    assert relative(own, dy[layout.decoder_tokens]) < 1e-12


def test_recorded_attention_is_the_map_s() -> None:
    classes = ss.syn_small()
    z = 0.1 * random_matrices(classes, 1)[1]
    result = ss.train(classes, **{**OPTIONS, "steps": 0}, init=(0 * z, z), attention_map=Square(), record="attention")
    weights = classes.probs * (1 + z[classes.query]) ** 2
    expected = (weights / weights.sum(1, keepdims=True))[:, classes.contextual_tokens]
    np.testing.assert_allclose(result["attention"].values[0, 0, 0, 0], expected, atol=1e-14)


def test_parts_are_axes_of_a_sweep_and_told_apart(tmp_path) -> None:
    maps, added = ["softmax", Power(), Power(3.0)], [False, True, HalfQuery()]
    result = ss.sweep(ss.syn_small(), **OPTIONS, attention_map=maps, residual=added, store=tmp_path / "s.zarr")
    assert result["attention_map"].values.tolist() == ["softmax", f"{__name__}.Power", f"{__name__}.Power(power=3.0)"]
    assert result["residual"].values.tolist() == [False, True, f"{__name__}.HalfQuery"]
    alone = ss.train(ss.syn_small(), **OPTIONS, attention_map=Power(3.0), residual=HalfQuery(), record_every=None)
    np.testing.assert_allclose(result["loss"].values[2, 2, 0, 0, 0], alone["loss"].values[0], rtol=1e-12)
    assert json.loads(alone.attrs["options"])["attention_map"] == f"{__name__}.Power(power=3.0)"
    run = tmp_path / "run.zarr"
    ss.train(ss.syn_small(), **OPTIONS, attention_map=Power(), store=run)
    with pytest.raises(
        ss.StoreError, match=r"holds another run, with attention_map = .*Power and not .*Power\(power=3"
    ):
        ss.train(ss.syn_small(), **OPTIONS, attention_map=Power(3.0), store=run)


def test_a_closed_form_can_be_compared_with_autograd() -> None:
    for layer in ({}, {"normalization": "layer"}, {"residual": True}, {"heads": 2, "residual": True}, *WRITTEN_OUT):
        assert ss.compare_gradients("syn-small", **layer) < 1e-12

    class Wrong(L2Normalization):
        def forward(self, x: torch.Tensor, rows: TokenRows) -> torch.Tensor:
            return self.unit(x, rows)[0]

        def unit(self, x: torch.Tensor, rows: TokenRows) -> tuple[torch.Tensor, torch.Tensor]:
            return super().unit(x, rows)

        def project(self, unit: torch.Tensor, g: torch.Tensor, rows: TokenRows) -> torch.Tensor:
            return g

    assert ss.compare_gradients("syn-small", normalization=Wrong()) > 1e-3
    for layer in BY_AUTOGRAD:
        with pytest.raises(ss.InputError, match=r"^this layer has no gradient in closed form"):
            ss.compare_gradients("syn-small", **layer)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (
            {"normalization": "l3"},
            "^unknown normalization 'l3': did you mean 'l2'\\? choose one of l2, layer, or give an",
        ),
        ({"attention_map": 3}, r"^attention_map is 3: give one of softmax, or an object with forward\(\.\.\.\)\.$"),
        ({"attention_map": Power}, "^attention_map is <class "),
        ({"residual": "qury"}, "^unknown residual 'qury': did you mean 'query'"),
        ({"residual": None}, r"^residual is None: give True or False, or an object with forward\(\.\.\.\)\.$"),
        ({"layers": 2, "attention_map": Power()}, "leave out normalization, attention_map, residual and heads"),
    ],
)
def test_refusals(layer: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ss.InputError, match=sentence):
        ss.train(ss.syn_small(), **OPTIONS, **layer)


def part(**methods: Any) -> SimpleNamespace:
    """An object with these methods."""
    return SimpleNamespace(**methods)


def softmax(z: torch.Tensor, log_a: torch.Tensor) -> torch.Tensor:
    return (z + log_a).softmax(-1)


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ({"attention_map": part(forward=lambda z, a: z.sigmoid())}, "attends to a token that is absent"),
        ({"attention_map": part(forward=lambda z, a: z * a.exp())}, "gives negative attention"),
        ({"attention_map": part(forward=lambda z, a: softmax(z, a).sum(-1))}, r"forward gives a Tensor of shape \(2, "),
        ({"attention_map": part(forward=lambda z, a: None)}, "forward gives NoneType for a tensor of shape"),
        ({"attention_map": part(forward=lambda z, a: softmax(z, a) / 0)}, "forward gives numbers that are not finite"),
        ({"attention_map": part(forward=lambda z, a: softmax(z, a).detach())}, "has no gradient by z and ln a"),
        ({"attention_map": part(forward=lambda z, a: z.nothing)}, r"fails with AttributeError: .*line \d+\)\.$"),
        ({"attention_map": part(forward=softmax, backward=lambda z, a, c, dc: dc)}, "give the gradients by z and by"),
        ({"attention_map": part(forward=softmax, backward=lambda z, a, c, dc: (dc, dc.sum()))}, "backward gives a Ten"),
        ({"normalization": part(forward=lambda x, rows: x - rows.mean(x))}, "set spreads = True in its class"),
        ({"normalization": part(forward=lambda x, rows: x - x.mean(-1, keepdim=True), spreads=True)}, "sums over rows"),
        ({"normalization": part(forward=lambda x, rows: x.sum(-1))}, "forward gives a Tensor of shape"),
        ({"normalization": part(forward=lambda x: x)}, "fails with TypeError"),
        ({"residual": part(forward=lambda u, query: u[..., 0])}, "forward gives a Tensor of shape"),
    ],
)
def test_parts_are_tried_first(layer: dict[str, Any], sentence: str) -> None:
    for ask in (
        lambda: ss.train("syn-small", **OPTIONS, **layer),
        lambda: ss.sweep("syn-small", **OPTIONS, **layer),
        lambda: ss.flow("syn-small", lr_y=1.0, lr_z=1.0, times=[1], **layer),
        lambda: ss.compare_gradients("syn-small", **layer),
    ):
        with pytest.raises(ss.InputError, match=f"^the (attention map|normalization|residual) Simple.*{sentence}"):
            ask()
