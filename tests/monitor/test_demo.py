"""The demonstration: what it says is what it saw."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scansnap.monitor.demo import LENGTH, VERSE, WORDS, story, train_demo, verses
from tests.monitor.given_attention import even, series


def test_verses_repeat() -> None:
    """From the second verse on, each word is the one that followed the word before, and no word is twice in a verse."""
    for row in verses(200, torch.Generator().manual_seed(0)).tolist():
        length = next(i for i in range(1, LENGTH) if row[i] == row[0])
        assert VERSE[0] <= length <= VERSE[1]
        assert len(set(row[:length])) == length
        assert all(row[i] == row[i - length] for i in range(length, LENGTH))
    assert len(set(WORDS)) == 64


def test_a_short_demonstration_says_that_nothing_has_formed(tmp_path) -> None:
    heard: list[int] = []
    random_state, threads = torch.get_rng_state(), torch.get_num_threads()
    losses: list[float] = []

    def hear(step: int, loss: float, watching: object) -> None:
        heard.append(step)
        losses.append(loss)

    watching = train_demo(steps=20, store=tmp_path / "a.zarr", on_snapshot=hear)
    assert heard == [10, 20]
    assert watching.dataset["loss"].values[1:].tolist() == losses
    assert losses[0] > losses[1] > 3
    of_all = train_demo(steps=20, every=20).dataset["loss"].values[-1]
    assert of_all == pytest.approx(np.mean(losses), rel=1e-6)  # each is a mean since the snapshot before
    assert torch.equal(random_state, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert watching.dataset["step"].values.tolist() == [0, 10, 20]
    assert set(watching.dataset["token"].values.tolist()) <= set(WORDS)
    assert story(watching.dataset).startswith("no induction head has formed by step 20: layer ")


def test_the_story_tells_when_it_formed() -> None:
    scores = [0.02, 0.05, 0.3, 0.7, 0.9]
    snapshots = series([np.stack([np.stack([even(8)] * 2)] * 2)] * 5)
    for i, score in enumerate(scores):
        snapshots["prefix_matching"][i, 1, 1] = score
    snapshots["loss"][:] = np.array([np.nan, 3.9, 3.0, 2.0, 1.5])
    said = story(snapshots)
    assert said.startswith("layer 1, head 1 became an induction head: until step 50 less than 10%")
    assert "after step 100 more than half, at the end 90%" in said
    assert "fell from 3.90 to 3.00 between these steps and is 1.50" in said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_induction_heads_form(seed: int) -> None:
    """As the documentation says, at other seeds too: half a minute each."""
    watching = train_demo(seed=seed)
    score = watching.dataset["prefix_matching"].values.max((1, 2))
    steps = watching.dataset["step"].values
    assert score[steps == 250].item() < 0.1
    assert score[steps == 600].item() > 0.8
    assert watching.dataset["loss"].sel(step=250) > 3.7
    assert watching.dataset["loss"].sel(step=800) < 1.9
    assert {verdict.name for verdict in watching.verdicts} >= {"induction-like"}
