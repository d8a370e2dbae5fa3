"""Is it the same model: what attention that has moved so far, in so many steps, says."""

from __future__ import annotations

import numpy as np
import pytest

from scansnap.monitor.dataset import PACE, SAME, Snapshot, is_other_model
from tests.monitor.looks import Weights, first, series

LENGTH = 12


def pattern(*weights: float) -> Weights:
    """One layer; each head has a weight on the first token, and the rest spread evenly."""
    return np.stack([first(LENGTH, weight) for weight in weights])[None]


def now(step: int, *weights: float) -> Snapshot:
    return Snapshot(step, {}, pattern(*weights).astype(np.float32))


def distance(a: float, b: float) -> float:
    """The share of attention that differs: each row moves its even share of keys but the first."""
    return abs(a - b) * float(np.mean(1 - 1 / np.arange(1, LENGTH + 1)))


def test_a_single_look_is_compared_at_its_own_step_only() -> None:
    stored = series([pattern(0.1)])
    assert is_other_model(stored, now(0, 0.5))
    assert not is_other_model(stored, now(0, 0.1))
    assert not is_other_model(stored, now(50, 0.5))


@pytest.mark.parametrize(("step", "passed"), [(200, 1), (150, 1), (250, 2)])
def test_attention_goes_on_at_about_its_pace(step: int, passed: int) -> None:
    """The limit from both sides: the last look is at step 150, and looks are 50 steps apart."""
    stored = series([pattern(weight) for weight in (0.1, 0.2, 0.22, 0.24)])
    limit = SAME + PACE * distance(0.1, 0.2) * passed
    for share, differs in ((0.98, False), (1.02, True)):
        weight = 0.24 + share * limit / distance(0.0, 1.0)
        assert is_other_model(stored, now(step, weight)) == differs


def test_a_model_that_begins_anew_is_other_model() -> None:
    """Nearer to the first look than to the last, though the pace would allow it."""
    stored = series([pattern(weight) for weight in (0.1, 0.3, 0.5)])
    assert not is_other_model(stored, now(100, 0.31))
    assert is_other_model(stored, now(100, 0.29))


def test_heads_and_keys_that_are_not_there_say_nothing() -> None:
    looks = [pattern(0.1, 0.2), pattern(0.15, 0.9)]
    for weights in looks:
        weights[0, 1] = np.nan  # the layer has one head
        weights[0, 0, :, -1] = np.nan  # and a key less
    stored = series(looks)
    assert not is_other_model(stored, now(50, 0.15, 0.0))
    assert is_other_model(stored, now(50, 0.9, 0.9))
    assert not is_other_model(stored, Snapshot(50, {}, np.full_like(now(50, 0.5, 0.5).pattern, np.nan)))  # type: ignore[arg-type]
