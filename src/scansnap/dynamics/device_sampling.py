"""Token counts drawn on a GPU: `data/sampling.py`, bit for bit, as one Triton kernel.

One program per sequence: it hashes its key, finds its class, makes the same 32-bit draws and counts them against the
same thresholds.  Nothing but the counts leaves the registers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.base.devices import has_triton
from scansnap.data.compiled_draws import padded_length
from scansnap.data.sampling import SamplingTables
from scansnap.dynamics.gradients import Batch, LayoutTensors
from scansnap.dynamics.options import Runs, StepOptions
from scansnap.model.compact import CompactLayout

LONGEST, WIDEST = 1023, 256
"""One warp draws a sequence of at most this many contextual tokens, from a class of at most this many tokens."""


def suits(layout: CompactLayout, options: StepOptions) -> bool:
    """Whether a program's draws and thresholds fit its registers, and the CPU sampler makes the same draws."""
    small = options.length <= LONGEST and layout.support.shape[1] <= WIDEST
    return has_triton() and options.batch_size is not None and options.length > 0 and small


class DeviceSampler:
    """Batches drawn where they are used."""

    capturable = True

    def __init__(self, layout: CompactLayout, tensors: LayoutTensors, options: StepOptions, runs: Runs) -> None:
        tables = SamplingTables.of(layout.classes)
        device, dtype = tensors.probs.device, tensors.probs.dtype
        batch = options.batch_size
        assert batch is not None  # `make_sampler` gives expected updates to another sampler
        self._seeds = torch.as_tensor(runs.seed.astype("int64"), device=device)
        self._size = torch.as_tensor(tables.size, device=device)
        self._thresholds = torch.as_tensor(tables.thresholds, device=device)
        self._class_thresholds = torch.as_tensor(tables.class_thresholds, device=device)
        self._class_index = torch.empty((len(runs), batch), dtype=torch.int64, device=device)
        self._support = tensors.support
        self._counts = torch.empty((len(runs), batch, layout.num_rows), dtype=dtype, device=device)
        weights = torch.full((len(runs), batch), 1.0 / batch, dtype=dtype, device=device)
        self._batch = Batch(self._class_index, self._counts, weights)
        self._length = options.length

    def draw(self, t: int, step: Tensor) -> Batch:
        draw_on_device(
            self._seeds, step, self._size, self._thresholds, self._class_thresholds, self._support, self._length,
            self._class_index, self._counts,
        )  # fmt: skip
        return self._batch


def draw_on_device(
    seeds: Tensor,
    step: Tensor,
    size: Tensor,
    thresholds: Tensor,
    class_thresholds: Tensor,
    support: Tensor,
    length: int,
    class_index: Tensor,
    counts: Tensor,
) -> None:
    """Fill class_index (R, B) and counts (R, B, S) with the sequences of update `step`."""
    import triton

    from scansnap.dynamics.triton_sampling import draw

    runs, batch, num_rows = counts.shape
    num_classes, width = thresholds.shape
    padded = int(padded_length(length))
    counts.zero_()
    draw[(runs * batch,)](
        seeds, step, size, thresholds, class_thresholds, support, class_index, counts,
        batch, num_classes, width, num_rows, length, padded // 2,
        CLASSES=triton.next_power_of_2(num_classes), DRAWS=triton.next_power_of_2(padded),
        WIDTH=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
