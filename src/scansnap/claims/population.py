"""The engine's population gradient at any state, on plain arrays, with which the claims compare the theory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.compiled.gradient_at import first_gradient
from scansnap.dynamics.engine import Work
from scansnap.dynamics.flow import flow
from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.start import Start
from scansnap.results.measure import one_head
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import physical_memory
from scansnap.systems.yz.compact import CompactLayout
from scansnap.theory import MeasuredGradient, directions, measured_gradient
from scansnap.theory.reduced_dynamics import DecoderGradient

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class State:
    """Y (S x M) and Z (Q x S) over the contextual tokens, at one time."""

    classes: SequenceClasses
    decoder: FloatArray
    attention_logits: FloatArray

    @property
    def direction(self) -> FloatArray:
        """f_n (K x S)."""
        order = np.argsort(self.classes.queries)
        row = order[np.searchsorted(self.classes.queries, self.classes.query, sorter=order)]
        return directions(self.classes.probs[:, self.classes.contextual_tokens], self.attention_logits[row])

    @property
    def measured(self) -> MeasuredGradient:
        return measured_gradient(self.direction, self.decoder, next_token=self.classes.next_token)

    def velocity(self, *, modified: bool = False) -> tuple[FloatArray, FloatArray]:
        """dY/dt (S x M) and dz/dt (Q x S) at unit rates, by the engine.

        Y must come from a symmetric start: its columns of tokens that are never next are equal.
        """
        layout = CompactLayout.of(self.classes)
        first_token = np.array([np.flatnonzero(layout.column_of_token == j)[0] for j in range(layout.num_columns)])
        compact = np.zeros((1, len(self.decoder), len(layout.multiplicity)))
        compact[0, :, : layout.num_columns] = self.decoder[:, first_token]
        start = Start(layout, compact, self.attention_logits[None], np.zeros(layout.num_rows), None)
        options = TrainOptions(
            lr_y=1.0,
            lr_z=1.0,
            steps=1,
            batch_size=None,
            seq_len=math.inf,
            decoder_gradient="modified" if modified else "true",
        )
        return first_gradient(Work(self.classes, options), start)


def trajectory(
    classes: SequenceClasses,
    *,
    times: FloatArray,
    lr_y: float,
    lr_z: float,
    decoder_gradient: DecoderGradient = "true",
) -> tuple[list[State], xr.Dataset]:
    """The states of `flow` from zero at the times, and its result."""
    needed = 3 * 8 * len(times) * len(classes.contextual_tokens) * classes.vocab_size
    if needed > physical_memory() / 4:
        raise InputError(
            f"this check holds the decoder at {len(times)} times, {needed / 2**30:.0f} GiB for {classes.vocab_size:,} "
            f"tokens of which {len(classes.contextual_tokens):,} occur: give smaller classes."
        )
    result = one_head(
        flow(
            classes,
            lr_y=lr_y,
            lr_z=lr_z,
            times=times,
            decoder_gradient=decoder_gradient,
            record=("loss", "attention", "attention_logits", "decoder"),
            progress=False,
        )
    )
    states = [
        State(classes, result["decoder"].values[0, i], result["attention_logits"].values[0, i])
        for i in range(len(times))
    ]
    return states, result
