"""Several heads (Sections 3 and 5): what they have in common with one head, and the start as a prior.

Equal heads are one head
------------------------
H heads add their logits: w_n = sum_h Y_h^T f_nh, so they share one residual r_n.  Let them start equal.  Then they stay
equal; Y = sum_h Y_h = H Y_h reads one f_n, and by Lemma 1

    dY/dt = H eta_Y sum_n P(n) f_n r_n^T,        dz/dt = eta_Z (...) Y_h r_n = (eta_Z/H) (...) Y r_n:

they are one head with the rates H eta_Y and eta_Z/H, and not with eta_Y and eta_Z.  Heads that start apart are coupled
through the residual too, so that none of them trains as it would alone.  (For the true gradient; the modified one of
several heads is defined head by head.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.claims.check import Check, Curve, Setting
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.synthetic import syn_medium, syn_small
from scansnap.dynamics.flow import flow
from scansnap.dynamics.train import train
from scansnap.runtime.errors import InputError

TIMES = np.geomspace(1, 1e5, 21)
STARTS = 40
"""Heads that start apart, over all runs."""
MOST_DENSE_TOKENS = 400
"""The largest vocabulary for which whole M x M starts of all heads are drawn."""


def head_logits(classes: SequenceClasses, *, lr_y: float, lr_z: float, heads: int, times: FloatArray) -> FloatArray:
    """Z (time, Q, S) of the first of several heads along a flow from zero."""
    result = flow(classes, lr_y=lr_y, lr_z=lr_z, times=times, heads=heads, record=("attention_logits",), progress=False)
    logits = result["attention_logits"].isel(run=0, layer=0, head=0).transpose("time", "query", "token")
    return np.asarray(logits.values, np.float64)


@claim(
    "Several heads are one head with several starts at the same time.",
    where="Section 3, objective",
    category="too strong",
    conditions="true SGD, heads normalized one by one whose logits add; equal heads for the law",
    setting=lambda: Setting(syn_medium(num_query=1), lr_y=0.5, lr_z=0.3),
    wrong_factor=1.01,
    correction=r"heads share the residual: $H$ heads that start equal are one head with the rates $H \eta_Y$ and "
    r"$\eta_Z/H$",
)
def heads_as_one(check: Check) -> None:
    """z of two and of four heads from zero along flows up to 10^5 steps, against one head at both pairs of rates."""
    classes, lr_y, lr_z = check.setting.classes, check.setting.lr_y, check.setting.lr_z
    alone = head_logits(classes, lr_y=lr_y, lr_z=lr_z, heads=1, times=TIMES)
    moves_most = int(np.abs(alone[-1]).argmax())
    lines = {"one head": _entry(alone, moves_most)}
    for heads in (2, 4):
        together = head_logits(classes, lr_y=lr_y, lr_z=lr_z, heads=heads, times=TIMES)
        scaled = head_logits(classes, lr_y=heads * lr_y, lr_z=lr_z / heads, heads=1, times=TIMES)
        check.equal(f"z of {heads} heads by one head at the same rates", alone, together, tolerance=0.05)
        check.equal(
            f"z of {heads} heads by one head at H eta_Y and eta_Z/H", scaled, together, tolerance=1e-5, role="corrected"
        )
        lines |= {
            f"one of {heads} heads": _entry(together, moves_most),
            f"one head at {heads} eta_Y, eta_Z/{heads}": _entry(scaled, moves_most),
        }
    dots = tuple(name for name in lines if name.startswith("one head at"))
    check.curve = Curve(TIMES, lines, "steps", "z of the token that moves most", dots=dots)


def _entry(logits: FloatArray, index: int) -> FloatArray:
    """One entry of Z over time."""
    return logits.reshape(len(logits), -1)[:, index]


@claim(
    r"The initial value is a prior: the token with the largest $P(l|n) \exp(z(0))$ wins, so that heads that start "
    "apart combine different tokens.",
    where="Section 5, initial value as prior; Theorem 3",
    category="holds under its assumptions",
    conditions=r"$Y(0) = 0$; $Z(0)$ uniform in $\pm4/\sqrt{M}$",
    setting=lambda: Setting(syn_small(), lr_y=1.0, lr_z=1.0),
    wrong_factor=-1.0,
    needs=("distinct tokens",),
)
def heads_prior(check: Check) -> None:
    """The winner among the first class's distinct tokens in 40 heads: flows, sampled training, and Y(0) random."""
    classes = check.setting.classes
    size, rng = classes.vocab_size, check.rng()
    if size > MOST_DENSE_TOKENS:
        raise InputError(
            f"heads_prior draws whole {size} x {size} matrices for {STARTS} heads: give classes of at most "
            f"{MOST_DENSE_TOKENS} tokens."
        )
    scale = 4 / np.sqrt(size)
    z = rng.uniform(-scale, scale, size=(STARTS // 4, 4, size, size))
    y = rng.uniform(-1, 1, size=z.shape) / np.sqrt(size)
    rates: dict[str, Any] = {"lr_y": check.setting.lr_y, "lr_z": check.setting.lr_z, "progress": False}
    ahead, won = [], []
    for start in z[:3]:
        options: dict[str, Any] = {"heads": 4, "init": (np.zeros_like(start), start)}
        run = flow(classes, **rates, **options, times=[1e-3, 1e4], record=("attention",))
        ahead.append(_winners(classes, run.isel(time=0)))
        won.append(_winners(classes, run.isel(time=1)))
    check.positive("the token ahead at the start wins, flow, 12 heads", _same(ahead, won), allowed=0.1)
    pairs = [won[i][0, a] != won[i][0, b] for i in range(3) for a in range(4) for b in range(a)]
    check.at_least("share of pairs of heads that pick different tokens", float(np.mean(pairs)), 0.2)
    sampled: dict[str, Any] = {
        **rates,
        "steps": 100,
        "batch_size": 128,
        "seq_len": 128,
        "momentum": 0.9,
        "heads": 4,
        "record_every": 100,
        "record": ("attention",),
        "seeds": check.seeds(len(z)),
    }
    starts = {"Y(0) = 0": np.zeros_like(y), "Y(0) random": y}
    for name, decoder in starts.items():
        run = train(classes, **sampled, init=(decoder, z))
        same = _same([_winners(classes, run.isel(step=0))], [_winners(classes, run.isel(step=-1))])
        check.positive(
            f"the token ahead at the start wins, sampled training, {name}, {STARTS} heads",
            same,
            role="assumed" if name == "Y(0) = 0" else "beyond",
            allowed=0.15,
        )


def _winners(classes: SequenceClasses, run: xr.Dataset) -> NDArray[np.int64]:
    """The first class's distinct token with the most attention (run, head)."""
    attention = run["attention"].isel({"class": 0, "layer": 0}).sel(token=classes.distinct_tokens(0))
    return np.asarray(attention.argmax("token").transpose("run", "head").values, np.int64)


def _same(ahead: list[NDArray[np.int64]], won: list[NDArray[np.int64]]) -> FloatArray:
    """One where the token that was ahead won, minus one elsewhere."""
    return np.where(np.concatenate(ahead) == np.concatenate(won), 1.0, -1.0)
