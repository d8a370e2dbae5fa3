"""The engine that integrates the flow of the basic layer on a GPU: all runs at once, each at its own pace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scansnap.dynamics.collocation import tableau
from scansnap.dynamics.compiled.flow_engine import KernelFlow
from scansnap.dynamics.flow_engine import FloatArray, FlowWork
from scansnap.dynamics.options import Runs
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import find_device, has_triton
from scansnap.systems.yz.compact import CompactLayout

WIDEST, LARGEST = 128, 2**14
"""What a program holds in registers at most: the logits of a query, squared; the entries of y that a class reads."""

AT_ONCE = 2**12
"""Entries of y that a program takes at once, if they are of several classes."""

WARPS, REGISTERS = 8, 128
"""Warps of a program, and registers of a thread where they suffice: two programs share a multiprocessor then."""


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
        padding = Padding.of(work.start_layout)
        if padding.logits > WIDEST or padding.width * padding.columns > LARGEST:
            raise InputError(
                f"device is cuda, where flow takes at most {WIDEST} tokens of a query and {LARGEST:,} entries of Y "
                f"that a class reads, but rounded up to powers of two these classes have {padding.logits} and "
                f"{padding.width * padding.columns:,}: use device='cpu'."
            )
        return True

    def _integrate(
        self, runs: Runs, beginning: FloatArray, first: int, most_evaluations: int, show: Callable[[float], None]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        from scansnap.dynamics import triton_flow

        options, layout, device = self._work.options, self._start.layout, find_device(self._work.options.device)
        count, (num_runs, length) = len(options.times), beginning.shape
        times, scales = zip(*(self._work.log_times(runs, r) for r in range(num_runs)), strict=True)

        def put(array: NDArray[np.generic]) -> Tensor:
            return torch.tensor(array, device=device)

        def lost(*shape: int) -> Tensor:
            return torch.full(shape, torch.nan, dtype=torch.float64, device=device)

        padding = Padding.of(layout)
        logit_sources = sources(self._system.place, layout.size, int(self._system.blocks[-1]), padding.width)
        row_sources = sources(layout.support, layout.size, layout.num_rows, padding.width)
        system = {name: put(array) for name, array in self._system._asdict().items() if isinstance(array, np.ndarray)}
        tables = triton_flow.Tables(
            **system,
            tableau=put(np.concatenate([np.ravel(part) for part in tableau()])),
            logit_sources=put(logit_sources),
            row_sources=put(row_sources),
        )
        shape = triton_flow.Shape(
            classes=len(layout.size),
            width=layout.support.shape[1],
            columns=layout.num_columns,
            queries=layout.num_queries,
            rows=layout.num_rows,
            logits=logit_sources.shape[1],
            logit_sources=len(logit_sources),
            row_sources=len(row_sources),
            entries=length - logit_sources.shape[1],
            length=length,
        )
        room = triton_flow.room(shape, padding.classes, padding.width, padding.columns, padding.logits)
        states, reached = lost(num_runs, count, length), lost(num_runs)
        losses, accuracies = lost(num_runs, count), lost(num_runs, count)
        triton_flow.integrate[(num_runs,)](
            tables,
            shape,
            put(np.stack([runs.lr_y, runs.lr_z, scales], axis=1)),
            put(beginning),
            put(np.stack(times)),
            states,
            losses,
            accuracies,
            reached,
            torch.empty(num_runs * room, dtype=torch.float64, device=device),
            count,
            room,
            put(np.array([options.rtol, options.atol])),
            most_evaluations,
            K=padding.classes,
            W=padding.width,
            C=padding.columns,
            P=padding.logits,
            num_warps=WARPS,
            num_stages=1,
            maxnreg=REGISTERS if padding.is_small else None,
        )
        ends = np.array(scales) * np.expm1(reached.cpu().numpy())
        show(num_runs)
        return states[:, :, first:].cpu().numpy(), losses.cpu().numpy(), accuracies.cpu().numpy(), ends


@dataclass(frozen=True)
class Padding:
    """The powers of two that hold each."""

    classes: int  # that a program takes at once
    width: int  # tokens of a class
    columns: int  # of y
    logits: int  # of a query

    @classmethod
    def of(cls, layout: CompactLayout) -> Padding:
        num_classes, widest = layout.support.shape
        width, columns = _power(widest), _power(layout.num_columns)
        logits = _power(int(np.diff(layout.query_entries()[0]).max()))
        return cls(min(_power(num_classes), max(1, AT_ONCE // (width * columns))), width, columns, logits)

    @property
    def is_small(self) -> bool:
        return max(self.width * self.columns, self.logits**2) <= AT_ONCE


def _power(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def sources(targets: NDArray[np.integer], size: NDArray[np.int32], count: int, width: int) -> NDArray[np.int32]:
    """(D, count): the places n width + w at which `targets` (K, W) has each number below `count`, then -1."""
    places: list[list[int]] = [[] for _ in range(count)]
    for n, tokens in enumerate(size):
        for w in range(tokens):
            places[targets[n, w]].append(n * width + w)
    table = np.full((max(map(len, places)), count), -1, np.int32)
    for target, own in enumerate(places):
        table[: len(own), target] = own
    return table
