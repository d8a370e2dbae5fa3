"""The engine that integrates the flow of the basic layer on a GPU: all runs at once, each at its own pace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.base.devices import find_device, has_triton
from scansnap.base.errors import InputError
from scansnap.dynamics.collocation import tableau
from scansnap.dynamics.compiled.flow_engine import KernelFlow
from scansnap.dynamics.flow_engine import FloatArray, FlowWork
from scansnap.dynamics.options import Runs
from scansnap.model.compact import CompactLayout

WIDEST, LARGEST = 128, 2**14
"""What a program holds in registers at most: the logits of a query, squared; the entries of y that a class reads."""


class DeviceFlow(KernelFlow):
    """A program of `triton_flow.py` for each run: its numbers cannot depend on the others."""

    @staticmethod
    def serves(work: FlowWork) -> bool:
        """All that a GPU is asked for, or a sentence that says why not."""
        if work.options.device == "cpu":
            return False
        find_device(work.options.device)
        if not work.is_basic:
            raise InputError(
                "device is cuda, where flow integrates the basic layer along the true gradient, with tokens that do "
                "not depend on their position: use device='cpu' for this setting."
            )
        if not has_triton():
            raise InputError("device is cuda, where flow needs Triton, which is not installed: use device='cpu'.")
        pad_logits, pad_width, pad_columns = paddings(work.start_layout)
        if pad_logits > WIDEST or pad_width * pad_columns > LARGEST:
            raise InputError(
                f"device is cuda, where flow integrates classes with at most {WIDEST} logits of a query and "
                f"{LARGEST:,} entries of Y read by a class, powers of two, but these have {pad_logits} and "
                f"{pad_width * pad_columns:,}: use device='cpu'."
            )
        return True

    def _integrate(
        self, runs: Runs, beginning: FloatArray, most_evaluations: int, show: Callable[[float], None]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        from scansnap.dynamics import triton_flow

        options, layout, device = self._work.options, self._start.layout, find_device(self._work.options.device)
        count, (num_runs, length) = len(options.times), beginning.shape
        times, scales = zip(*(self._work.log_times(runs, r) for r in range(num_runs)), strict=True)

        def put(array: NDArray[np.generic]) -> Tensor:
            return torch.tensor(array, device=device)

        def lost(*shape: int) -> Tensor:
            return torch.full(shape, torch.nan, dtype=torch.float64, device=device)

        parts = [np.ravel(part) for part in tableau()]
        tables = triton_flow.Tables(
            **{name: put(getattr(self._system, name)) for name in triton_flow.Tables._fields if name != "tableau"},
            tableau=put(np.concatenate(parts)),
        )
        num_classes, widest = layout.support.shape
        entries = length - int(self._system.blocks[-1])
        shape = triton_flow.Shape(num_classes, widest, layout.num_columns, layout.num_queries, entries, length)
        logits, width, columns = paddings(layout)
        room = triton_flow.VECTORS.value * length + (1 + len(tableau().nodes)) * layout.num_queries * logits**2
        states, reached = lost(num_runs, count, length), lost(num_runs)
        losses, accuracies = lost(num_runs, count), lost(num_runs, count)
        triton_flow.integrate[(num_runs,)](
            tables, shape, put(np.stack([runs.lr_y, runs.lr_z, scales], axis=1)), put(beginning), put(np.stack(times)),
            states, losses, accuracies, reached, torch.empty(num_runs * room, dtype=torch.float64, device=device),
            count, room, put(np.array([options.rtol, options.atol])), most_evaluations,
            W=width, C=columns, P=logits, num_warps=8 if logits > 32 else 4, num_stages=1,
        )  # fmt: skip
        ends = np.array(scales) * np.expm1(reached.cpu().numpy())
        show(num_runs)
        return states.cpu().numpy(), losses.cpu().numpy(), accuracies.cpu().numpy(), ends


def paddings(layout: CompactLayout) -> tuple[int, int, int]:
    """The powers of two that hold the logits of a query, the tokens of a class and the columns of y."""
    widest = int(np.diff(layout.query_entries()[0]).max())
    widest, width, columns = (
        1 << (size - 1).bit_length() for size in (widest, layout.support.shape[1], layout.num_columns)
    )
    return widest, width, columns
