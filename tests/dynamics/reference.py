"""An independent, slow way to do what the engines do: autograd of the plain model on one-hot sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.start import Start
from scansnap.dynamics.task import Engine
from scansnap.dynamics.yz_tasks import YZTraining
from scansnap.systems.yz.compact import CompactLayout


def random_matrices(classes: ss.SequenceClasses, seed: int, heads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Y and Z, each M x M, or one for each of several heads."""
    rng = np.random.default_rng(seed)
    shape = (heads, classes.vocab_size, classes.vocab_size)
    y, z = rng.normal(size=shape), rng.normal(size=shape)
    return (y[0], z[0]) if heads == 1 else (y, z)


def autograd(
    classes: ss.SequenceClasses,
    decoder: np.ndarray,
    attention: np.ndarray,
    sequences: np.ndarray,
    owner: np.ndarray,
    model: ss.YZTransformer | None = None,
    **architecture: Any,
) -> tuple[np.ndarray, np.ndarray, float]:
    """dJ/dY, dJ/dZ and the loss of a batch, float64."""
    model = model or ss.YZTransformer(classes.vocab_size, dtype=torch.float64, **architecture)
    with torch.no_grad():
        model.decoder.copy_(torch.from_numpy(decoder))
        model.attention_logits.copy_(torch.from_numpy(attention))
    loss = model.loss(torch.from_numpy(sequences), torch.from_numpy(classes.next_token[owner]))
    loss.backward()
    assert model.decoder.grad is not None
    assert model.attention_logits.grad is not None
    return -model.decoder.grad.numpy(), -model.attention_logits.grad.numpy(), loss.item()


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    """|found - expected| / |expected|, and |found| where nothing is expected."""
    size = np.linalg.norm(expected)
    return float(np.linalg.norm(found - expected) / (size if size > 0 else 1.0))


OPTIONS: dict[str, Any] = {
    "lr_y": 1.0,
    "lr_z": 1.0,
    "steps": 1,
    "batch_size": 8,
    "seq_len": 16,
    "dtype": "float64",
    "record": ("loss",),
}


def work_of(classes: ss.DataSource, **options: Any) -> YZTraining:
    return YZTraining.checked(classes, TrainOptions(**{**OPTIONS, **options}))


def start_of(classes: ss.DataSource, **options: Any) -> Start:
    work = work_of(classes, **options)
    return work.start(work.options.runs)


def engine_of(kind: Any, classes: ss.DataSource, **options: Any) -> Any:
    """An engine of the class given, whatever `engine_for` would choose."""
    work = work_of(classes, **options)
    return kind(work, work.start(work.options.runs), work.options.runs)


def logits_of(engine: Engine) -> np.ndarray:
    """z (R, Q H, S), with the prior in it."""
    return engine.state()["attention_logits"].copy()


def decoder_of(engine: Engine) -> np.ndarray:
    """y (R, H D, C)."""
    return engine.state()["decoder"].copy()


RATE = 2.0**40  # a power of two: multiplying and dividing by it loses nothing


def observed_gradient(
    kind: Any, classes: ss.SequenceClasses, decoder: np.ndarray, attention: np.ndarray, **options: Any
) -> tuple[np.ndarray, np.ndarray, float, Any]:
    """dJ/dY (H D, M) and dJ/dz (Q H, S) on the rows that are kept, and the loss, from one update at a huge rate.

    The last is the engine after it.
    """
    options = {"init": (decoder, attention), "lr_y": RATE, "lr_z": RATE, **options}
    engine, layout = engine_of(kind, classes, **options), start_of(classes, **options).layout
    before_y, before_z = decoder_of(engine)[0], logits_of(engine)[0]
    loss = engine.advance(1)[0][0, 0]
    dy = (decoder_of(engine)[0] - before_y)[:, layout.column_of_token] / RATE
    return dy, (logits_of(engine)[0] - before_z) / RATE, loss, engine


def rows_of(layout: CompactLayout, full: np.ndarray) -> np.ndarray:
    """The rows of (H, M, M) that the layout keeps, (H D, M); the last may be a mean of many."""
    own = full[:, layout.decoder_tokens]
    if len(layout.other_tokens):
        own = np.concatenate([own, full[:, layout.other_tokens].mean(1)[:, None]], axis=1)
    return own.reshape(-1, full.shape[-1])


def check_gradient(
    kind: Any,
    classes: ss.SequenceClasses,
    decoder: np.ndarray,
    attention: np.ndarray,
    sequences: np.ndarray,
    owner: np.ndarray,
    model: ss.YZTransformer | None = None,
    **options: Any,
) -> Any:
    """Compare an engine with autograd of the plain M x M model on the sequences of its first batch, to 1e-12.

    `model` is another one than YZTransformer, with parameters of its own; the engine after one update is returned.
    """
    layer = {name: options[name] for name in ("normalization", "residual", "heads") if name in options}
    heads, size = options.get("heads", 1), classes.vocab_size
    prior = options.get("attention_prior", np.zeros(size))
    dy, dz, loss = autograd(classes, decoder, attention + prior, sequences, owner, model, **layer)
    dy, dz = dy.reshape(heads, size, size), dz.reshape(heads, size, size)
    options = {"batch_size": len(sequences), "seq_len": sequences.shape[1], **options}
    found_y, found_z, found_loss, engine = observed_gradient(kind, classes, decoder, attention, **options)
    layout = start_of(classes, **{**options, "init": (decoder, attention)}).layout
    assert found_loss == pytest.approx(loss, rel=1e-12)
    # Rows that are one in the layout move alike, so that their mean moves as each of them does.
    assert relative(found_y, rows_of(layout, dy)) < 1e-12
    # Z's gradient is a difference of projections: measured against the larger of it and what reaches the tokens.
    expected = dz[:, classes.queries][:, :, layout.rows].swapaxes(0, 1).reshape(found_z.shape)
    assert np.linalg.norm(found_z - expected) < 1e-12 * max(np.linalg.norm(dz), np.linalg.norm(dy))
    # What the layout leaves out has no gradient.
    dy[:, layout.decoder_tokens] = 0
    dy[:, layout.other_tokens] = 0
    dz[:, classes.queries[:, None], layout.rows] = 0
    assert not dy.any()
    assert not dz.any()
    return engine


def bucketed() -> ss.PositionedClasses:
    """Two buckets of 2 and 3 positions, three classes of two queries, a token that only the far bucket has."""
    common: dict[str, Any] = {"query": [5, 5, 6], "next_token": [7, 8, 0], "vocab_size": 9, "weights": [0.5, 0.3, 0.2]}
    near = ss.SequenceClasses(
        probs=[[0.6, 0.4, 0, 0, 0, 0, 0, 0, 0], [0.1, 0, 0.9, 0, 0, 0, 0, 0, 0], [0.5, 0, 0, 0.5, 0, 0, 0, 0, 0]],
        **common,
    )
    far = ss.SequenceClasses(
        probs=[[0.2, 0, 0, 0.8, 0, 0, 0, 0, 0], [0.7, 0, 0.3, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0.1, 0.9, 0, 0, 0, 0]],
        **common,
    )
    return ss.PositionedClasses.from_parts(sizes=[2, 3], parts=[near, far])


class Given(ss.DataSource):
    """The sequences of other classes, which no engine knows how to draw."""

    def __init__(self, classes: ss.PositionedClasses) -> None:
        self._classes = classes

    @property
    def classes(self) -> ss.PositionedClasses:
        return self._classes

    def draw(self, **request: Any) -> Any:
        return self._classes.draw(**request)


def population_gradients(
    classes: ss.SequenceClasses, decoder: np.ndarray, attention: np.ndarray, *, centered: bool = False
) -> tuple[np.ndarray, np.ndarray, float]:
    """dJ/dY (M x M), dJ/dZ (Q x M, rows in the order of `classes.queries`) and J at T -> infinity, by autograd.

    LN is that of the paper, or the standard one, which is `centered`.
    """
    y = torch.tensor(decoder, dtype=torch.float64, requires_grad=True)
    z = torch.tensor(attention, dtype=torch.float64, requires_grad=True)
    order = {int(token): i for i, token in enumerate(classes.queries)}
    rows = z[[order[int(token)] for token in classes.query]]
    c = torch.from_numpy(classes.probs) * torch.exp(rows)
    if centered:
        c = c - c.mean(1, keepdim=True)
    f = c / c.norm(dim=1, keepdim=True)
    selected = torch.log_softmax(f @ y, dim=1)[torch.arange(len(f)), torch.from_numpy(classes.next_token.copy())]
    objective = torch.from_numpy(classes.weights.copy()) @ selected
    objective.backward()
    assert y.grad is not None
    assert z.grad is not None
    return y.grad.numpy(), z.grad.numpy(), objective.item()
