"""States of the population dynamics: each class sees the logits of its own query."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap import theory
from scansnap.claims import population
from scansnap.claims.population import State, trajectory
from scansnap.runtime.errors import InputError
from tests.theory.test_finite_length import uneven_classes


def test_each_class_has_the_direction_of_its_own_query() -> None:
    """Three queries with different logits, ids in no order: rows of Z come in the order of `classes.queries`."""
    classes = uneven_classes()
    assert classes.queries.tolist() == [9, 7, 8]
    tokens = classes.contextual_tokens
    logits = np.random.default_rng(0).normal(size=(3, len(tokens)))
    direction = State(classes, np.zeros((len(tokens), classes.vocab_size)), logits).direction
    for n, row in enumerate([0, 1, 0, 2]):
        wanted = theory.directions(classes.probs[n : n + 1, tokens], logits[row])[0]
        np.testing.assert_allclose(direction[n], wanted, rtol=1e-14)


@pytest.mark.parametrize("gradient", ["true", "modified"])
def test_states_of_a_trajectory_attend_as_recorded(gradient: str) -> None:
    """c_n of the flow is the state's f_n scaled to a sum of one, for every class and time."""
    classes = uneven_classes()
    states, whole = trajectory(classes, times=np.array([1.0, 30.0]), lr_y=0.5, lr_z=0.5, decoder_gradient=gradient)
    for i, state in enumerate(states):
        attention = state.direction / state.direction.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(attention, whole["attention"].values[0, i], atol=1e-7)
    assert np.ptp(states[1].attention_logits, axis=0).max() > 1e-3  # the queries have come apart


def test_a_trajectory_takes_up_to_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three copies of the decoder, 7 x 14 numbers of 8 bytes, at two times."""
    classes, times = uneven_classes(), np.array([1.0, 2.0])
    needed = 3 * 8 * 2 * len(classes.contextual_tokens) * classes.vocab_size
    monkeypatch.setattr(population, "physical_memory", lambda: 4 * needed)
    assert len(trajectory(classes, times=times, lr_y=0.5, lr_z=0.5)[0]) == 2
    monkeypatch.setattr(population, "physical_memory", lambda: 4 * needed - 1)
    with pytest.raises(InputError, match="holds the decoder at 2 times"):
        trajectory(classes, times=times, lr_y=0.5, lr_z=0.5)
