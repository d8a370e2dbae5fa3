"""The GPU's sampler against the CPU's: on a GPU, or by Triton's interpreter on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.batches import HostSampler, Request
from scansnap.dynamics.gradients import LayoutTensors
from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.random_entries import CHOICE_STREAM, choose
from scansnap.systems.yz.compact import CompactLayout

pytest.importorskip("triton", reason="Triton is for Linux only")

from scansnap.dynamics.device_sampling import DeviceSampler, choose_on_device

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NEAR = ss.near_distinct()
NEAR_LENGTH = 1 + int(NEAR.sizes.sum())
SMALL = ss.syn_small()
EVEN = ss.SequenceClasses(
    probs=(SMALL.probs > 0) / 20, query=SMALL.query, next_token=SMALL.next_token, vocab_size=SMALL.vocab_size
)
BUCKETS = ss.PositionedClasses.from_parts(sizes=[2, 3, 140], parts=[SMALL, EVEN, SMALL])


@pytest.mark.parametrize(
    ("classes", "seq_len"),
    [
        (ss.syn_small(), 2),
        (ss.syn_medium(num_query=3), 65),
        (ss.syn_medium(num_query=3), 200),
        (NEAR, NEAR_LENGTH),
        (BUCKETS, 146),
    ],
    ids=["small", "medium", "long", "positions", "buckets of positions"],
)
def test_it_draws_the_same_counts(classes: SequenceClasses, seq_len: int) -> None:
    """The sequences of each seed, which two runs share, in the order of their classes."""
    layout = CompactLayout.of(classes, np.arange(classes.vocab_size))
    tensors = LayoutTensors.of(layout, dtype=torch.float64, device=DEVICE)
    options = TrainOptions(
        lr_y=1.0,
        lr_z=1.0,
        seeds=[7, 0, 2**40, 7],
        steps=1,
        batch_size=5,
        seq_len=seq_len,
        dtype="float64",
        device=DEVICE,
    )
    host = HostSampler(classes, tensors, Request(options.runs.seed, options.batch_size, options.length))
    device = DeviceSampler(layout, tensors, options, options.runs)
    for t in (0, 1, 12345):
        drawn = device.draw(t, torch.tensor(t, device=DEVICE))
        assert len(drawn.class_index) == 3
        ours, theirs = drawn.of_runs(), host.draw(t, torch.tensor(t, device=DEVICE))
        assert torch.equal(ours.class_index, theirs.class_index.sort(1).values)
        assert bool((ours.token_weights.sum(2) == seq_len - 1).all())
        assert in_any_order(ours.token_weights) == in_any_order(theirs.token_weights)
        assert (ours.buckets is None) == (theirs.buckets is None)
        if ours.buckets is not None and theirs.buckets is not None:
            assert in_any_order(ours.buckets.flatten(2)) == in_any_order(theirs.buckets.flatten(2))


def in_any_order(counts: torch.Tensor) -> list[list[list[float]]]:
    """The sequences of every run, sorted."""
    return [sorted(run.tolist()) for run in counts]


@pytest.mark.parametrize("step", [0, 3, 10**9])
def test_it_makes_the_same_choices(step: int) -> None:
    seeds = np.array([0, 5, 2**63 - 1], np.uint64)
    theirs = np.empty((3, 33), np.int64)
    choose(seeds, CHOICE_STREAM + step, 40, theirs)
    ours = torch.empty(theirs.shape, dtype=torch.int64, device=DEVICE)
    choose_on_device(torch.as_tensor(seeds.astype("int64"), device=DEVICE), torch.tensor(step, device=DEVICE), 40, ours)
    assert np.array_equal(ours.cpu().numpy(), theirs)
