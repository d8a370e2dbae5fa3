"""Several layers, also one: they do what whole sequences do; and what cannot be combined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.dynamics.update_rules import Adam
from scansnap.dynamics.yz_tensors import LayersModel, YZTensorEngine, feature_tokens
from scansnap.systems.yz.compact import CompactLayout
from tests.dynamics.reference import work_of
from tests.strategies import sequence_classes

pytestmark = pytest.mark.rounding


def layers_of(classes: ss.SequenceClasses, **options: Any) -> tuple[YZTensorEngine, LayersModel]:
    """The engine and its model of layers, even if there is one layer."""
    work = work_of(classes, **options)
    runs = work.options.runs
    engine = YZTensorEngine(work, work.start(runs), runs)
    engine._model = LayersModel(work, work.start(runs), runs)
    engine._memory = {
        block: {name: torch.zeros_like(matrix) for name in work.options.rule.memory}
        for block, matrix in engine._model.parameters.items()
    }
    return engine, engine._model


def positions(
    parameters: dict[str, torch.Tensor], sequences: torch.Tensor, layers: int, act: Any
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The network as it is defined, position by position, on coordinates (B, T) with the query last: the last layer's
    output (B, C), and every layer's attention (B, T, T - 1)."""
    x = torch.eye(len(parameters["attention_logits_0"]), dtype=torch.float64)[sequences]  # (B, T, N)
    attention = []
    for j in range(layers):
        z, y = parameters[f"attention_logits_{j}"], parameters[f"decoder_{j}"]
        c = torch.softmax(x @ z @ x[:, :-1].mT, dim=2)  # every position attends to those before the query
        mixed = c @ x[:, :-1]
        read = mixed / mixed.norm(dim=2, keepdim=True) @ y
        attention.append(c)
        if j < layers - 1:
            x = x + act(read)
            x = x / x.norm(dim=2, keepdim=True)
    return read[:, -1], attention


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda groups: torch.optim.SGD(groups, maximize=True),
    "momentum": lambda groups: torch.optim.SGD(groups, momentum=0.8, maximize=True),
    "adam": lambda groups: torch.optim.Adam(groups, eps=0.01, maximize=True),
}
SCALE_FREE = ("sign_sgd", "normalized_sgd")
"""A gradient that is zero but for rounding, as of two tokens that are alike, moves a matrix as far as any other: only
what has a gradient can be compared, after one update."""


def plainly(
    model: LayersModel,
    classes: ss.SequenceClasses,
    seed: int,
    *,
    optimizer: str,
    num: int,
    seq_len: int,
    layers: int,
    nonlinearity: str,
    steps: int,
) -> tuple[list[float], dict[str, torch.Tensor], np.ndarray]:
    """Train the first run on whole sequences with autograd, whose every output token has a column of its own.

    The losses, the matrices, and the mean attention of each layer to each token as the output sees it (L, N)."""
    layout = model_layout(classes, model)
    tokens = feature_tokens(layout)
    coordinate = {int(token): i for i, token in enumerate(tokens)}
    sequences, owner = ss.sample_sequences(classes, num=num, seq_len=seq_len, seed=seed)
    placed = torch.tensor([[coordinate[int(token)] for token in sequence] for sequence in sequences])
    target = torch.from_numpy(classes.next_token[owner].copy())
    last = f"decoder_{layers - 1}"
    parameters = {
        name: (tensor[0][:, layout.column_of_token] if name == last else tensor[0]).clone().requires_grad_()
        for name, tensor in model.parameters.items()
    }
    rate = {name: model.rates[name].item() for name in parameters}
    step = OPTIMIZERS.get(optimizer)
    rule = step([{"params": [p], "lr": rate[name]} for name, p in parameters.items()]) if step else None
    act, losses = torch.tanh if nonlinearity == "tanh" else torch.relu, []
    for _ in range(steps):
        logits, _ = positions(parameters, placed, layers, act)
        loss = torch.nn.functional.cross_entropy(logits, target)
        losses.append(loss.item())
        gradients = torch.autograd.grad(-loss, list(parameters.values()))
        if rule is not None:
            for p, g in zip(parameters.values(), gradients, strict=True):
                p.grad = g
            rule.step()
            continue
        with torch.no_grad():
            for (name, p), g in zip(parameters.items(), gradients, strict=True):
                known = g.abs() > 1e-12 if optimizer == "sign_sgd" else g.norm() > 1e-12
                p.copy_(torch.where(known, p + rate[name] * (g.sign() if known.ndim else g / g.norm()), torch.nan))
    with torch.no_grad():
        _, attention = positions(parameters, placed, layers, act)
    seen, through = [], attention[-1][:, -1:]  # (B, 1, T - 1)
    for c in [*reversed(attention[:-1]), None]:
        one_hot = torch.nn.functional.one_hot(placed[:, :-1], len(tokens)).double()
        seen.insert(0, (through @ one_hot).mean((0, 1)).numpy())
        through = through if c is None else through @ c[:, :-1]
    return losses, {name: p.detach() for name, p in parameters.items()}, np.stack(seen)


def model_layout(classes: ss.SequenceClasses, model: LayersModel) -> CompactLayout:
    work = work_of(classes, init=model._options.init, layers=model._options.layers)
    return work.start_layout


@settings(max_examples=60, deadline=None)
@given(
    classes=sequence_classes(),
    layers=st.integers(1, 4),
    start=st.sampled_from([("zeros", "tanh"), ("uniform", "tanh"), ("uniform", "relu")]),
    optimizer=st.sampled_from(["sgd", "momentum", "adam", "sign_sgd", "normalized_sgd"]),
    num=st.integers(1, 20),
    seq_len=st.integers(2, 14),
    seed=st.integers(0, 10**6),
)
def test_the_engine_does_what_whole_sequences_do(
    classes: ss.SequenceClasses,
    layers: int,
    start: tuple[str, str],
    optimizer: str,
    num: int,
    seq_len: int,
    seed: int,
) -> None:
    """Four updates on a fixed set, against autograd over positions and torch's own optimizers, to 1e-12."""
    init, nonlinearity = start if layers > 1 or start[1] == "tanh" else ("uniform", "tanh")
    rule: dict[str, Any] = {"adam": {"optimizer": Adam(epsilon=0.01)}, "momentum": {"momentum": 0.8}}.get(
        optimizer, {"optimizer": optimizer}
    )
    steps = 1 if optimizer in SCALE_FREE else 4
    engine, model = layers_of(
        classes,
        layers=layers,
        init=init,
        nonlinearity=nonlinearity,
        steps=steps,
        num_sequences=num,
        batch_size=None,
        seq_len=seq_len,
        seeds=seed,
        lr_y=0.3,
        lr_z=0.5,
        **rule,
    )
    setting = {"num": num, "seq_len": seq_len, "layers": layers, "nonlinearity": nonlinearity, "steps": steps}
    losses, expected, attention = plainly(model, classes, seed, optimizer=optimizer, **setting)
    np.testing.assert_allclose(engine.advance(steps)[0][0], losses, rtol=1e-12, atol=1e-12)
    last, column = f"decoder_{layers - 1}", model_layout(classes, model).column_of_token
    for name, tensor in model.parameters.items():
        result = tensor[0][:, column] if name == last else tensor[0]
        known = ~expected[name].isnan()
        np.testing.assert_allclose(result[known], expected[name][known], rtol=1e-12, atol=1e-12, err_msg=name)
    if optimizer in SCALE_FREE:
        return
    batch = model._batches.at(steps)
    mean = np.zeros((layers, attention.shape[1] + 1))
    for sequence, n in zip(model._forward(model.parameters, batch)[1][0], batch.class_index[0], strict=True):
        np.add.at(mean, (slice(None), model._layout.support[n].numpy()), sequence.numpy() / num)
    np.testing.assert_allclose(mean[:, :-1], attention, rtol=0, atol=1e-12)


def test_a_sequence_of_one_token_moves_no_attention() -> None:
    """Its softmax has no choice: the gradient is exactly zero, so that a rule that ignores size moves nothing."""
    classes = ss.SequenceClasses.from_supports(
        tokens=[np.array([0]), np.array([1])],
        probs=[np.ones(1)] * 2,
        query=np.array([2, 2]),
        next_token=np.array([0, 1]),
        vocab_size=3,
    )
    options = {"init": "uniform", "optimizer": "sign_sgd", "steps": 5, "seeds": range(5), "batch_size": 50}
    engine, model = layers_of(classes, layers=3, seq_len=50, **options)
    before = {name: tensor.clone() for name, tensor in model.parameters.items()}
    engine.advance(5)
    for name, tensor in model.parameters.items():
        assert torch.equal(tensor, before[name]) == name.startswith("attention"), name


def test_a_run_of_layers_is_recorded_and_swept() -> None:
    options: dict[str, Any] = {"lr_z": 1.0, "lr_y": 1.0, "steps": 12, "batch_size": 8, "layers": 2}
    whole = ss.train(ss.syn_small(), **options)
    assert whole["attention"].dims == ("run", "step", "layer", "head", "class", "token")
    assert whole["entropy"].dims == ("run", "step", "layer", "head", "class")
    assert "attention_logits" not in whole
    result = ss.sweep(ss.syn_small(), **{**options, "layers": [1, 2]}, record=("loss",), nonlinearity="tanh")
    assert result["loss"].dims == ("layers", "lr_z", "lr_y", "seed", "step")
    both = result["loss"].sel(layers=2, lr_z=1.0, lr_y=1.0, seed=0)
    np.testing.assert_allclose(both, whole["loss"].values[0, [0, -1]], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layers": 0}, "layers is 0: give a whole number from 1 to 16"),
        ({"nonlinearity": "relu"}, "nonlinearity is 'relu' but there is one layer"),
        ({"layers": 2, "nonlinearity": "gelu"}, "unknown nonlinearity 'gelu'"),
        ({"layers": 2, "nonlinearity": "relu"}, "ReLU has no slope at zero"),
        ({"layers": 2, "heads": 2}, "leave out normalization, attention_map, residual and heads"),
        ({"layers": 2, "residual": True}, "leave out normalization, attention_map, residual and heads"),
        ({"layers": 2, "decoder_gradient": "modified"}, "Lemma 3 is about one"),
        ({"layers": 2, "record": ("decoder", "loss")}, "decoder cannot be recorded: several layers allow only"),
        ({"layers": 2, "attention_prior": {"common": 1.0}}, "attention_prior is for one layer: leave it out"),
        ({"layers": 2, "init": (np.zeros((34, 34)), np.zeros((34, 34)))}, "start them from 'zeros' or 'uniform'"),
    ],
)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ss.InputError, match=sentence):
        ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=1, **options)


def test_a_diverging_run_is_marked() -> None:
    result = ss.train(ss.syn_small(), lr_y=[1.0, 1e39], lr_z=1.0, steps=5, layers=2, seq_len=math.inf)
    assert result["status"].values.tolist() == ["ok", "diverged"]
    assert np.isfinite(result["loss"].values[0]).all()
