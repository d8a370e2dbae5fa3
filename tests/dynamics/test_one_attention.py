"""Eq. 5 is computed in several places: on whole sequences, for results, for gradients, for layers.  All are one map."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.dynamics.gradients import LayoutTensors, directions, population_batch, token_weights
from scansnap.systems.yz.architecture import Layer
from scansnap.systems.yz.compact import CompactLayout, attention_of_classes
from scansnap.systems.yz.layer import attend, layered_logits
from tests.strategies import sequence_classes

pytestmark = pytest.mark.rounding


class OwnSoftmax:
    """The softmax as a user would write it, which is not recognized as the built-in one."""

    def forward(self, z: torch.Tensor, log_a: torch.Tensor) -> torch.Tensor:
        weights = torch.exp(z) * torch.exp(log_a)
        return weights / weights.sum(-1, keepdim=True)


def as_sequences(classes: ss.SequenceClasses, seed: int) -> tuple[torch.Tensor, ss.SequenceClasses]:
    """One sequence of each class (K, T), and the classes whose P(l|n) are its counts."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(classes.support(i), 9, p=classes.support_probs(i)) for i in range(classes.num_classes)]
    counted = [np.unique(row, return_counts=True) for row in rows]
    empirical = ss.SequenceClasses.from_supports(
        tokens=[tokens for tokens, _ in counted],
        probs=[counts / 9 for _, counts in counted],
        query=classes.query,
        next_token=classes.next_token,
        vocab_size=classes.vocab_size,
    )
    return torch.from_numpy(np.column_stack([np.stack(rows), classes.query])), empirical


def written_out(classes: ss.SequenceClasses, z: np.ndarray) -> np.ndarray:
    """c_n on the whole vocabulary (K, M)."""
    scores = np.where(classes.probs > 0, z[classes.query], -np.inf)
    weights = classes.probs * np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


@settings(max_examples=40)
@given(classes=sequence_classes(), seed=st.integers(0, 10**6), scale=st.sampled_from([0.0, 1.0, 30.0]))
def test_every_attention_is_the_same(classes: ss.SequenceClasses, seed: int, scale: float) -> None:
    sequences, classes = as_sequences(classes, seed)
    size, num_classes = classes.vocab_size, classes.num_classes
    z = scale * np.random.default_rng(seed).normal(size=(size, size))
    attention, flipped = written_out(classes, z), written_out(classes, -z)
    direction = attention / np.linalg.norm(attention, axis=1, keepdims=True)

    def same(found: np.ndarray, expected: np.ndarray) -> None:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)

    # The plain model, position by position.
    model = ss.YZTransformer(size, dtype=torch.float64)
    with torch.no_grad():
        model.attention_logits.copy_(torch.from_numpy(z))
        model.decoder.copy_(torch.eye(size, dtype=torch.float64))  # logits are the direction
        context, query = sequences[:, :-1], sequences[:, -1]
        one_hot = torch.nn.functional.one_hot(context, size).double()
        same(attend(model.attention_logits[query].gather(1, context), one_hot).numpy(), attention)
        same(model(sequences).numpy(), direction)

    # What results show, by the built-in map and by a user's; of two heads the second has the logits -z.
    rows = classes.contextual_tokens
    for layer in (Layer(heads=2), Layer(heads=2, attention_map=OwnSoftmax())):
        layout = CompactLayout.of(classes, layer=layer)
        logits = np.stack([z, -z])[:, classes.queries][:, :, rows]
        same(attention_of_classes(layout, logits)[0], attention[:, rows])
        same(attention_of_classes(layout, logits)[1], flipped[:, rows])
    run = ss.train(classes, lr_y=0, lr_z=0, steps=0, init=(0 * z, z), dtype="float64", record="attention")
    same(run["attention"].values[0, 0, 0, 0], attention[:, rows])

    # What gradients go through, in closed form and by autograd.
    for layer in (Layer(), Layer(attention_map=OwnSoftmax())):
        tensors = LayoutTensors.of(CompactLayout.of(classes, layer=layer), dtype=torch.float64)
        batch = population_batch(tensors, 1)
        compact = torch.from_numpy(z[classes.queries][:, rows])[None]
        value = directions(tensors, compact, batch, token_weights(batch)).value[0, :, 0].numpy()
        same(value, direction[:, rows])
        same(value / value.sum(1, keepdims=True), attention[:, rows])

    # One of several layers; features are contextual tokens, then the other queries.
    tokens = np.concatenate([rows, np.setdiff1d(classes.queries, rows)])
    place = {int(token): i for i, token in enumerate(tokens)}
    features = torch.from_numpy(z[np.ix_(tokens, tokens)])[None]
    log_a = torch.log(torch.from_numpy(classes.probs[:, rows]))[None]
    own = torch.tensor([[place[int(token)] for token in classes.query]])
    every = torch.arange(len(rows)).expand_as(log_a)
    logits, seen = layered_logits([torch.eye(len(tokens)).double()[None]], [features], log_a, every, own)
    assert len(seen) == 1
    assert logits.shape == (1, num_classes, len(tokens))
    same(seen[0][0].numpy(), attention[:, rows])
    same(logits[0, :, : len(rows)].numpy(), direction[:, rows])
