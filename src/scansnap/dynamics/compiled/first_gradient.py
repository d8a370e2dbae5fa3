"""The gradient that the CPU kernel moves along, for whoever compares it with another.

From rest, a step with momentum mu takes v = g and leaves the velocity mu g (`rules.py`).  With mu = 1/2 twice that
velocity is the gradient, without the rounding of a difference Y(1) - Y(0).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scansnap.dynamics.compiled.training_engine import KernelEngine
from scansnap.dynamics.engine import Work
from scansnap.dynamics.start import Start


def first_gradient(work: Work, start: Start) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """dJ/dY (S x M) and dJ/dz (Q x S) of the first batch of a run, by entry, for the basic layer."""
    options = replace(work.options, optimizer="sgd", momentum=0.5, dtype="float64")
    engine = KernelEngine(Work(work.source, options), start, options.runs)
    engine.advance(1)
    state, layout = engine.state(), start.layout
    decoder = layout.entry_rate * np.asarray(state["decoder_velocity"][0], np.float64)
    return layout.expand_decoder(2 * decoder)[0], 2 * np.asarray(state["attention_velocity"][0], np.float64)
