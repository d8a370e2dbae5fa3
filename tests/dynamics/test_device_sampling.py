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
from scansnap.model.compact import CompactLayout

pytest.importorskip("triton", reason="Triton is for Linux only")

from scansnap.dynamics.device_sampling import DeviceSampler

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("classes", [ss.syn_small(), ss.syn_medium(num_query=3)], ids=["small", "medium"])
@pytest.mark.parametrize("seq_len", [2, 65, 200])
def test_it_draws_the_same_counts(classes: SequenceClasses, seq_len: int) -> None:
    layout = CompactLayout.of(classes, np.arange(classes.vocab_size))
    tensors = LayoutTensors.of(layout, dtype=torch.float64, device=DEVICE)
    options = TrainOptions(
        lr_y=1.0, lr_z=1.0, seeds=[0, 7, 2**40], steps=1, batch_size=3, seq_len=seq_len, dtype="float64", device=DEVICE
    )
    host = HostSampler(classes, tensors, Request(options.runs.seed, options.batch_size, options.length))
    device = DeviceSampler(layout, tensors, options, options.runs)
    for t in (0, 1, 12345):
        ours, theirs = (s.draw(t, torch.tensor(t, device=DEVICE)) for s in (device, host))
        assert torch.equal(ours.class_index, theirs.class_index)
        assert torch.equal(ours.token_weights, theirs.token_weights)
        assert bool((ours.token_weights.sum(2) == seq_len - 1).all())
