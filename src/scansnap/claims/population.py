"""Exact dynamics, with which the claims compare the theory: flows, gradients at a state, and trained runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import cumulative_simpson

from scansnap import theory
from scansnap.claims.check import Setting
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.flow import flow
from scansnap.dynamics.kernel_engine import first_gradient
from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.start import Start
from scansnap.dynamics.train import train
from scansnap.dynamics.yz_tasks import YZTraining
from scansnap.results.measure import one_head
from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import physical_memory
from scansnap.systems.yz.compact import CompactLayout
from scansnap.theory.overlap import Form
from scansnap.theory.reduced_dynamics import DecoderGradient, SymmetricTrajectory

FloatArray = NDArray[np.float64]

PUBLISHED: dict[str, Any] = {"steps": 100, "batch_size": 128, "seq_len": 128, "momentum": 0.9}
"""The options of the paper's synthetic experiments."""


@dataclass(frozen=True)
class PopulationState:
    """Y (S x M) and Z (Q x S) over the contextual tokens, at one time."""

    classes: SequenceClasses
    decoder: FloatArray
    attention_logits: FloatArray

    @property
    def direction(self) -> FloatArray:
        """f_n (K x S)."""
        row = (self.classes.queries == self.classes.query[:, None]).argmax(axis=1)
        return theory.directions(self.classes.probs[:, self.classes.contextual_tokens], self.attention_logits[row])

    @property
    def measured(self) -> theory.MeasuredGradient:
        return theory.measured_gradient(self.direction, self.decoder, next_token=self.classes.next_token)

    def velocity(self, *, modified: bool = False) -> tuple[FloatArray, FloatArray]:
        """dY/dt (S x M) and dz/dt (Q x S) at unit rates, by the engine.

        Y must come from a symmetric start: its columns of tokens that are never next are equal.
        """
        layout = CompactLayout.of(self.classes)
        first_token = np.array([np.flatnonzero(layout.column_of_token == j)[0] for j in range(layout.num_columns)])
        compact = np.zeros((1, len(self.decoder), len(layout.multiplicity)))
        compact[0, :, : layout.num_columns] = self.decoder[:, first_token]
        start = Start(layout, compact, self.attention_logits[None], np.zeros(layout.num_rows), None)
        return first_gradient(_expected_update(self.classes, "modified" if modified else "true"), start)


@lru_cache(maxsize=8)
def _expected_update(classes: SequenceClasses, gradient: DecoderGradient) -> YZTraining:
    """One expected update at unit rates."""
    rates: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": None, "seq_len": math.inf}
    return YZTraining(classes, TrainOptions(**rates, steps=1, decoder_gradient=gradient))


def trajectory(
    classes: SequenceClasses,
    *,
    times: FloatArray,
    **options: Any,
) -> tuple[list[PopulationState], xr.Dataset]:
    """The states of `flow` from zero at the times, and its result."""
    needed = 3 * 8 * len(times) * len(classes.contextual_tokens) * classes.vocab_size
    if needed > physical_memory() / 4:
        raise InputError(
            f"this check holds the decoder at {len(times)} times, {needed / 2**30:.0f} GiB for {classes.vocab_size:,} "
            f"tokens of which {len(classes.contextual_tokens):,} occur: give smaller classes."
        )
    record = ("loss", "attention", "attention_logits", "decoder")
    result = one_head(flow(classes, times=times, record=record, progress=False, **options))
    moving = zip(result["decoder"].values[0], result["attention_logits"].values[0], strict=True)
    return [PopulationState(classes, decoder, logits) for decoder, logits in moving], result


def distinct_entries(classes: SequenceClasses, kind: str = "distinct") -> tuple[Any, ...]:
    """Entries (query row, token column) of Z that belong to tokens of one kind of a query's classes."""
    probs = classes.probs[:, classes.contextual_tokens]
    occurs = np.array([np.any(probs[classes.of_query(int(q))] > 0, axis=0) for q in classes.queries])
    return np.nonzero(occurs & (classes.kinds_of(classes.contextual_tokens) == kind))


def first_fall(classes: SequenceClasses, *, until: float, **options: Any) -> float:
    """When the logit of a distinct token first falls along a flow, in steps; infinite if none does by `until`.

    The first negative dz/dt is bracketed on eight times a decade; the bracket is then narrowed to 0.1%.
    """
    distinct = distinct_entries(classes)
    times = np.geomspace(1, until, int(8 * np.log10(until)) + 1)
    while True:
        states, _ = trajectory(classes, times=times, **options)
        falls = [bool((state.velocity()[1][distinct] < 0).any()) for state in states]
        if not any(falls):
            return math.inf
        i = falls.index(True)
        if i == 0 or times[i] < 1.001 * times[i - 1]:
            return float(times[i])
        times = np.geomspace(times[i - 1], times[i], 12)


def flow_logits(classes: SequenceClasses, *, times: Sequence[float] | FloatArray, **options: Any) -> xr.DataArray:
    """Z of `flow` (time, query, token) over the contextual tokens."""
    result = flow(classes, times=times, record=("attention_logits",), progress=False, **options)
    return one_head(result)["attention_logits"].isel(run=0).transpose("time", "query", "token")


def trained(classes: SequenceClasses, quantity: str, *, steps: int, **options: Any) -> FloatArray:
    """A quantity after the last of `steps` of `train`, runs on the first axis."""
    result = train(classes, steps=steps, record_every=steps, record=(quantity,), progress=False, **options)
    return np.asarray(one_head(result)[quantity].isel(step=-1).values)


def changed_classes(
    classes: SequenceClasses, *, token_probs: FloatArray | None = None, vocab_size: int | None = None
) -> SequenceClasses:
    """The classes with other probabilities of their tokens, without positions, or in another vocabulary size."""
    ends = classes.offsets[1:-1]
    return SequenceClasses.from_supports(
        tokens=np.split(classes.tokens, ends),
        probs=np.split(classes.token_probs if token_probs is None else token_probs, ends),
        query=classes.query,
        next_token=classes.next_token,
        vocab_size=vocab_size or classes.vocab_size,
        weights=classes.weights,
    )


def integral(drive: FloatArray, times: FloatArray) -> FloatArray:
    """int drive dt = int drive t d ln t up to each time; before the first time drive is in proportion to t."""
    return cumulative_simpson(drive * times, x=np.log(times), initial=0) + drive[0] * times[0] / 2


def symmetric_arguments(classes: SequenceClasses) -> dict[str, Any]:
    """Probabilities and sizes of symmetric classes, the arguments of `theory.symmetric_flow`."""
    ids, probs = classes.support(0), classes.support_probs(0)
    common = np.isin(ids, classes.common_tokens)
    return {
        "distinct_probs": probs[~common],
        "common_probs": probs[common],
        "num_classes": classes.num_classes,
        "vocab_size": classes.vocab_size,
        "classes_per_query": classes.num_classes // len(classes.queries),
    }


def symmetric_flow(
    setting: Setting, times: ArrayLike, gradient: DecoderGradient = "true", **rates: float
) -> SymmetricTrajectory:
    """`theory.symmetric_flow` of the setting's classes, which must be symmetric, at its rates or at those given."""
    return theory.symmetric_flow(
        times, **symmetric_arguments(setting.classes), **(rates or setting.rates), decoder_gradient=gradient
    )


def dominant_growth(trajectory: SymmetricTrajectory) -> FloatArray:
    """ln chi of the dominant token of symmetric classes."""
    return 2 * trajectory.distinct_logits.max(axis=1)


def phase_constant(setting: Setting) -> float:
    """C_0 of Theorem 4, of leading order in the overlap."""
    return float(theory.phase_constant(setting.overlap, num_classes=setting.classes.num_classes))


def growth_bound(setting: Setting, times: ArrayLike, form: Form = "exact") -> FloatArray:
    """B_n of Theorem 4 in the setting, with `phase_constant`."""
    return theory.growth_bound(times, **setting.sizes, **setting.rates, constant=phase_constant(setting), form=form)
