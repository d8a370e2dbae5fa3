"""An independent, slow way to do what the engines do: autograd of the plain model on one-hot sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import scansnap as ss
from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.start import Start
from scansnap.dynamics.task import Engine
from scansnap.dynamics.yz_tasks import YZTraining


def random_matrices(classes: ss.SequenceClasses, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    size = classes.vocab_size
    return rng.normal(size=(size, size)), scale * rng.normal(size=(size, size))


def autograd(
    classes: ss.SequenceClasses,
    decoder: np.ndarray,
    attention: np.ndarray,
    sequences: np.ndarray,
    owner: np.ndarray,
    **architecture: Any,
) -> tuple[np.ndarray, np.ndarray, float]:
    """dJ/dY, dJ/dZ and the loss of a batch, float64."""
    model = ss.YZTransformer(classes.vocab_size, dtype=torch.float64, **architecture)
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
    logits = engine.show(()).attention_logits
    assert logits is not None
    return logits


def decoder_of(engine: Engine) -> np.ndarray:
    """y (R, H D, C)."""
    decoder = engine.show(("decoder",)).decoder
    assert decoder is not None
    return decoder


def population_gradients(
    classes: ss.SequenceClasses, decoder: np.ndarray, attention: np.ndarray, *, centered: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """dJ/dY (M x M) and dJ/dZ (Q x M, rows in the order of `classes.queries`) at T -> infinity, by autograd.

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
    (torch.from_numpy(classes.weights.copy()) @ selected).backward()
    assert y.grad is not None
    assert z.grad is not None
    return y.grad.numpy(), z.grad.numpy()
