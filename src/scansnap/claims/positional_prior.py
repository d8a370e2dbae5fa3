"""Section 7's positional encoding: a bias by relative position is a prior on contextual tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from scansnap import theory
from scansnap.claims.check import Check, Curve, Setting
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray
from scansnap.data.positioned_classes import PositionedClasses, near_distinct
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.flow import flow
from scansnap.dynamics.train import train
from scansnap.results.measure import one_head
from scansnap.runtime.errors import InputError

TIMES = np.geomspace(1, 1e5, 21)


def weighed(classes: SequenceClasses, bias: ArrayLike) -> SequenceClasses:
    """The classes without positions to which a fixed bias is equivalent."""
    by_bucket = np.concatenate([np.array(classes.listed_probs(n)).T for n in range(classes.num_classes)])
    probs = theory.position_prior(by_bucket, sizes=classes.sizes, bias=bias)
    rows = [slice(classes.offsets[n], classes.offsets[n + 1]) for n in range(classes.num_classes)]
    return SequenceClasses.from_supports(
        tokens=[classes.tokens[row] for row in rows],
        probs=[probs[row] for row in rows],
        query=classes.query,
        next_token=classes.next_token,
        vocab_size=classes.vocab_size,
        weights=classes.weights,
    )


@claim(
    r"A bias by relative position is a prior on contextual tokens: $\exp(z + z_0) = \exp(z) \exp(z_0)$.",
    where="Section 7, positional encoding",
    category="holds under its assumptions",
    conditions=r"fixed bias, $T \to \infty$",
    setting=lambda: Setting(near_distinct(), lr_y=1.0, lr_z=0.5),
    wrong_factor=1.01,
)
def positional_prior(check: Check) -> None:
    """Attention along flows with ALiBi's bias against classes of reweighed P(l|n); sampled training; a learned bias."""
    classes = check.setting.classes
    if not classes.num_buckets:
        raise InputError("positional_prior says nothing about these classes: it needs tokens that depend on position.")
    rates: dict[str, Any] = {"lr_y": check.setting.lr_y, "lr_z": check.setting.lr_z, "progress": False}
    distance = np.arange(classes.num_buckets) + 1.0
    lines: dict[str, FloatArray] = {}
    for slope in (0.0, 0.25, 1.0):
        bias = -slope * distance
        biased = one_head(flow(classes, **rates, times=TIMES, position_bias=bias, record=("attention",)))
        plain = one_head(flow(weighed(classes, bias), **rates, times=TIMES, record=("attention",)))
        check.equal(f"attention, slope {slope:g}", plain["attention"], biased["attention"], tolerance=1e-5)
        lines[f"slope {slope:g}"] = _on_distinct(biased)
    same = PositionedClasses.from_parts(sizes=classes.sizes, parts=[weighed(classes, 0 * distance)] * len(distance))
    flat, steep = (
        one_head(flow(same, **rates, times=TIMES, position_bias=bias, record=("attention",)))["attention"].values
        for bias in (0 * distance, -distance)
    )
    check.equal("attention where tokens do not depend on position, slopes 0 and 1", flat, steep, tolerance=1e-5)
    learned = one_head(
        flow(classes, **rates, times=TIMES, learn_position_bias=True, record=("attention", "position_bias"))
    )
    lines["learned"] = _on_distinct(learned)
    last = learned["position_bias"].values[0, -1]
    check.positive("a learned bias falls with the distance from the query", -np.diff(last), role="contrast")
    length = int(classes.sizes.sum()) + 1
    options: dict[str, Any] = {**rates, "steps": 100, "seq_len": length, "seeds": check.seeds(8), "record_every": 100}
    bias = -0.25 * distance
    trained = one_head(train(classes, **options, position_bias=bias, record=("attention",)))["attention"].isel(step=-1)
    expected = one_head(train(weighed(classes, bias), **options, record=("attention",)))["attention"].isel(step=-1)
    check.equal(
        f"attention after sampled training, T = {length}, slope 0.25, mean of 8 runs",
        expected.mean("run"),
        trained.mean("run"),
        tolerance=0.05,
        role="beyond",
    )
    check.curve = Curve(TIMES, lines, "steps", "attention on distinct tokens (share)")


def _on_distinct(result: xr.Dataset) -> FloatArray:
    """The share of attention on distinct tokens, mean over classes."""
    attention = result["attention"].isel(run=0, token=result["token_kind"].values == "distinct")
    return np.asarray(attention.sum("token").mean("class").values, np.float64)
