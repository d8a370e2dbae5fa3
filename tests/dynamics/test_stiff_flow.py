"""`flow` at any rates against scipy's Radau, with the gradient written out class by class."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import scansnap as ss
from scansnap.data.named_classes import as_source
from scansnap.data.sequence_classes import SequenceClasses

pytestmark = pytest.mark.rounding

CORNERS = [(1e-6, 1e6), (1e6, 1e-6), (1e-6, 1e-6), (1e6, 1e6), (1e-3, 10.0), (1.0, 1e6)]


class Reference:
    """Lemma 1 from a zero start, in log time.  Y has a column for each next token and one for all others."""

    def __init__(self, classes: SequenceClasses) -> None:
        self.tokens, self.weights = classes.contextual_tokens, classes.weights
        self.probs = classes.probs[:, self.tokens]
        columns, self.own = np.unique(classes.next_token, return_inverse=True)
        queries, self.query = np.unique(classes.query, return_inverse=True)
        self.share = np.append(np.ones(len(columns)), classes.vocab_size - len(columns))
        self.shapes = (len(self.tokens), len(self.share)), (len(queries), len(self.tokens))

    def slope(self, u: float, state: np.ndarray, lr_y: float, lr_z: float, scale: float) -> np.ndarray:
        y, z = self.split(state)
        dy, dz = np.zeros_like(y), np.zeros_like(z)
        for probs, own, m, weight in zip(self.probs, self.own, self.query, self.weights, strict=True):
            at = np.flatnonzero(probs)
            scores = np.log(probs[at]) + z[m, at]
            f = np.exp(scores - scores.max())
            f /= np.linalg.norm(f)
            logits = f @ y[at]
            p = self.share * np.exp(logits - logits.max())
            p /= p.sum()
            x = np.where(np.arange(len(p)) == own, np.delete(p, own).sum(), -p)
            g = (y[at] - y[at, own][:, None]) @ x
            push = f * (g - (f @ g) * f)
            push -= push.sum() * f**2  # zero but for rounding
            dz[m, at] += weight * push
            dy[at] += weight * np.outer(f, x / self.share)
        return scale * np.exp(u) * np.concatenate([lr_y * dy.ravel(), lr_z * dz.ravel()])

    def split(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        entries = self.shapes[0][0] * self.shapes[0][1]
        return state[:entries].reshape(self.shapes[0]), state[entries:].reshape(self.shapes[1])

    def logits(self, lr_y: float, lr_z: float, times: np.ndarray) -> np.ndarray:
        scale = 1 / max(lr_y, lr_z)
        u = np.log1p(times / scale)
        beginning = np.zeros(sum(rows * columns for rows, columns in self.shapes))
        words = {"rtol": 1e-9, "atol": 1e-11, "args": (lr_y, lr_z, scale)}
        solution = solve_ivp(self.slope, (0, u[-1]), beginning, "Radau", u, **words)
        assert solution.success
        return np.array([self.split(state)[1] for state in solution.y.T])


def largest_error(classes: SequenceClasses, rates: list[tuple[float, float]]) -> float:
    """Of the logits, at 13 times up to 10^12."""
    times, reference = np.geomspace(1, 1e12, 13), Reference(classes)
    lr_y, lr_z = zip(*rates, strict=True)
    flows = ss.flow(classes, lr_y=lr_y, lr_z=lr_z, times=times, record="attention_logits")
    assert (flows["status"] == "ok").all()
    ours = flows["attention_logits"].values[:, :, 0, 0]
    return max(float(np.abs(ours[r] - reference.logits(*pair, times)).max()) for r, pair in enumerate(rates))


def drawn(count: int) -> list[tuple[float, float]]:
    """Pairs from the whole square, even in their logarithms."""
    return [(float(y), float(z)) for y, z in 10 ** np.random.default_rng(0).uniform(-6, 6, (count, 2))]


def test_two_classes_at_drawn_rates() -> None:
    """One pair in each half of the square, and the stiffest."""
    classes = ss.single_common(num_classes=2, num_distinct=1, vocab_size=10)
    slow = next(pair for pair in drawn(40) if pair[0] > 10 * pair[1])
    fast = next(pair for pair in drawn(40) if pair[1] > 10 * pair[0])
    assert largest_error(classes, [CORNERS[0], slow, fast]) < 1e-7


@pytest.mark.slow
def test_syn_medium_at_drawn_rates() -> None:
    """The corners, the rates that an explicit method fails at, and 40 drawn pairs."""
    assert largest_error(as_source("syn-medium-1").classes, CORNERS + drawn(40)) < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"residual": True}, {"normalization": "layer"}, {"heads": 2, "init": "uniform"}])
def test_other_layers_at_the_stiffest_rates(more: dict) -> None:
    """Within 60,000 evaluations: rounding that added up in the sum of the logits would take several times as many."""
    from scansnap.dynamics import yz_flow

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yz_flow, "MOST_EVALUATIONS", 60_000)
        ds = ss.flow("syn-medium-1", lr_y=1e-6, lr_z=1e6, times=[1.0, 1e12], record="loss", **more)
    assert ds["status"].values.tolist() == ["ok"]
