"""Several layers: one is the basic setting, two are what the sequences say, and what cannot be combined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics.layered_engine import LayeredEngine, _tokens
from scansnap.dynamics.tensor_engine import TensorEngine
from tests.dynamics.interruption import train_interrupted
from tests.dynamics.reference import engine_of, logits_of, relative


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"optimizer": "adam", "lr_y": 0.1, "lr_z": 0.1}], ids=str)
def test_one_layer_is_the_basic_setting(options: dict[str, Any]) -> None:
    """Twenty steps from zero, where output columns are merged, by autograd and by Lemma 1."""
    classes = ss.syn_medium(num_query=3)
    layered, basic = (engine_of(kind, classes, steps=20, **options) for kind in (LayeredEngine, TensorEngine))
    np.testing.assert_allclose(layered.advance(20), basic.advance(20), rtol=1e-9)
    size = len(classes.contextual_tokens)
    result = layered._parameters["attention_logits_0"].numpy()[:, layered._query.unique().numpy(), :size]
    order = np.argsort(classes.queries)
    assert relative(result, logits_of(basic)[:, order]) < 1e-9


def plain(
    classes: ss.SequenceClasses, engine: LayeredEngine, sequences: np.ndarray, owner: np.ndarray, layers: int, act: Any
) -> float:
    """The loss on whole sequences of one-hot features, position by position, for the first run."""
    from scansnap.model.compact import CompactLayout

    layout = CompactLayout.of(classes, np.arange(classes.vocab_size))
    tokens = list(_tokens(layout))
    total = 0.0
    for sequence, n in zip(sequences, owner, strict=True):
        x = torch.eye(len(tokens), dtype=torch.float64)[[tokens.index(token) for token in sequence]]  # (T, N)
        for j in range(layers):
            z, y = engine._parameters[f"attention_logits_{j}"][0], engine._parameters[f"decoder_{j}"][0]
            c = torch.softmax(x @ z @ x[:-1].T, dim=1)  # every position attends to those before the query
            mixed = c @ x[:-1]
            mixed = mixed / mixed.norm(dim=1, keepdim=True)
            if j == layers - 1:
                logits = (mixed[-1] @ y)[layout.column_of_token]
                break
            x = x + act(mixed @ y)
            x = x / x.norm(dim=1, keepdim=True)
        total -= torch.log_softmax(logits, 0)[classes.next_token[n]].item()
    return total / len(owner)


@pytest.mark.parametrize(("layers", "nonlinearity"), [(2, "tanh"), (3, "relu")])
def test_counts_do_what_sequences_do(layers: int, nonlinearity: str) -> None:
    """The loss of trained layers on the batch of the next update, to 1e-12."""
    classes = ss.synthetic(num_query=2, next_per_query=2, num_common=3, num_distinct=2)
    engine = engine_of(
        LayeredEngine, classes, init="uniform", layers=layers, nonlinearity=nonlinearity, steps=9, batch_size=8,
        seq_len=7, seeds=3,
    )  # fmt: skip
    expected = plain(classes, engine, *ss.sample_sequences(classes, num=8, seq_len=7, seed=3), layers,
                     torch.tanh if nonlinearity == "tanh" else torch.relu)  # fmt: skip
    assert engine.evaluate()[0][0] == pytest.approx(expected, rel=1e-12)
    before = engine.evaluate()[0][0]
    losses, _ = engine.advance(9)
    assert losses[0, 0] == before
    assert losses[0, -1] < losses[0, 0]
    attention = engine.show(("attention",)).attention
    assert attention.shape == (1, layers, 1, 4, len(classes.contextual_tokens))
    np.testing.assert_allclose(attention.sum(-1), 1, rtol=1e-12)
    assert (attention[0, :, 0, 0][:, ~np.isin(classes.contextual_tokens, classes.support(0))] == 0).all()


def test_a_run_of_layers_is_recorded_swept_and_goes_on(tmp_path) -> None:
    options: dict[str, Any] = {"lr_z": 1.0, "lr_y": 1.0, "steps": 12, "batch_size": 8, "layers": 2}
    whole = ss.train(ss.syn_small(), **options)
    assert whole["attention"].dims == ("run", "step", "layer", "head", "class", "token")
    assert whole["entropy"].dims == ("run", "step", "layer", "head", "class")
    assert "attention_logits" not in whole
    again = train_interrupted(ss.syn_small(), tmp_path / "run.zarr", advances=5, **options)
    np.testing.assert_array_equal(again["attention"].values, whole["attention"].values)
    result = ss.sweep(ss.syn_small(), **{**options, "layers": [1, 2]}, record=("loss",), nonlinearity="tanh")
    assert result["loss"].dims == ("layers", "lr_z", "lr_y", "seed", "step")
    both = result["loss"].sel(layers=2, lr_z=1.0, lr_y=1.0, seed=0)
    np.testing.assert_allclose(both, whole["loss"].values[0, [0, -1]], rtol=1e-6)


def test_runs_do_not_depend_on_their_neighbors() -> None:
    options: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 6, "batch_size": 8, "layers": 2, "init": "uniform",
                               "dtype": "float64", "num_sequences": 10}  # fmt: skip
    together, alone = ss.train(ss.syn_small(), **options, seeds=[3, 4]), ss.train(ss.syn_small(), **options, seeds=4)
    np.testing.assert_allclose(together["attention"].values[1], alone["attention"].values[0], atol=1e-12)


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
