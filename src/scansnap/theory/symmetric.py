"""The exact drive under true SGD: the population dynamics of symmetric classes in a handful of variables.

Classes as in Corollary 2: each has D distinct tokens with probabilities p_1 .. p_D, all share G common tokens with
probabilities q_1 .. q_G, and a query has k of the K classes (k = K in the corollary; Syn-Small and Syn-Medium have
k = 1 and 2).  From Y = Z = 0 the classes stay interchangeable, so that

- the row of Y of a distinct token has one value u at its own class's next token, one value v at the K - 1 other next
  tokens, and one at the M - K tokens that are never next;
- the row of Y of a common token has one value b at all K next tokens, and one at the others;
- rows of Y and Z sum to zero, which fixes the values at the tokens that are never next.

That leaves 3 D + 2 G variables: u, v, z of each distinct token, b, z of each common one.  K and M enter as numbers.
With f = c~/|c~| over the D + G tokens, w = -(u + (K-1) v)/(M-K), w' = -K b/(M-K) and logits

    A = f.u + f.b   (own),        B = f.v + f.b   (another next token),        C = f.w + f.w'   (any other)

let a_B, a_C be the probabilities of one token of the latter kinds and R = (K-1) a_B + (M-K) a_C = 1 - alpha_n.  Then

    du/dt = (eta_Y/K) f R          dv/dt = -(eta_Y/K) f a_B          db/dt = (eta_Y/K) f (M-K) a_C
    g     = u R - (K-1) v a_B - (M-K) w a_C   (distinct),            (b - w')(M-K) a_C   (common)
    dz/dt = (eta_Z/K) f (g - f (f.g))         (distinct),     k times that               (common)

This is Lemma 1 with its expectation written out: there is no approximation in the ratio of the rates, in M, K or the
overlap.  It shows where the published theory departs from SGD.  A common token's row of Y is a bias toward next tokens,
which is learned only as long as a_C lasts, so the push on z fades first as (M - K) a_C -> 0 and not with the published
beta ~ f_n . f_n'.  Early on beta_{nn'} = 1/M, so z falls like e^(2z) and not like e^(4z).

The modified gradient (Lemma 3) replaces f_n by column n of F (F^T F)^{-1} = x f_n + y sum_k f_k, with o = sum of the
common f^2, x = 1/(1 - o), y = -o x/(1 + (K-1) o).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError
from scansnap.theory.integration import integrate
from scansnap.validation.argument_types import NumberType
from scansnap.validation.checks import FloatArray, numbers, sizes, vector
from scansnap.validation.validate import formula

DecoderGradient = Literal["true", "modified"]

Tolerance = Annotated[float, NumberType({"least": 1e-30, "most": 0.1})]


@dataclass(frozen=True)
class SymmetricTrajectory:
    """The solution at each time (axis 0)."""

    times: FloatArray  # (n,) steps of batch 1
    distinct_logits: FloatArray  # (n, D) z of a class's distinct tokens
    common_logits: FloatArray  # (n, G) z of the common tokens
    distinct_attention: FloatArray  # (n, D) c_l, which sums to one with the next
    common_attention: FloatArray  # (n, G)
    overlap: FloatArray  # (n,) f_n . f_n'
    residual: FloatArray  # (n,) 1 - alpha_n
    logit_gain: FloatArray  # (n,) w_n . r_n = q_1 gamma
    distinct_drive: FloatArray  # (n, D) xi_nl; dz_l/dt = (eta_Z/K) f_l^2 xi_nl
    common_drive: FloatArray  # (n, G) the same; dz/dt = (eta_Z k/K) f^2 xi, negative while the token loses


@formula
def symmetric_flow(
    times: ArrayLike,
    *,
    distinct_probs: ArrayLike,
    common_probs: ArrayLike,
    num_classes: int,
    vocab_size: int,
    lr_y: float,
    lr_z: float,
    classes_per_query: int | None = None,
    decoder_gradient: DecoderGradient = "true",
    rtol: Tolerance = 1e-10,
    atol: Tolerance = 1e-12,
) -> SymmetricTrajectory:
    """Integrate the reduced equations in log time from Y = Z = 0 and return them at increasing `times`.

    >>> flow = theory.symmetric_flow(
    ...     [1e2, 1e6], distinct_probs=[0.3, 0.2], common_probs=[0.5], num_classes=3, vocab_size=100, lr_y=0.5, lr_z=0.5
    ... )
    >>> print(flow.common_logits.round(3).ravel())
    [-0.529 -0.916]
    """
    system = _System(
        vector("distinct_probs", distinct_probs, above=0),
        vector("common_probs", common_probs, above=0),
        int(sizes("num_classes", num_classes, least=2)),
        int(sizes("vocab_size", vocab_size, least=3)),
        float(numbers("lr_y", lr_y, above=0)),
        float(numbers("lr_z", lr_z, least=0)),
        int(sizes("classes_per_query", num_classes if classes_per_query is None else classes_per_query, least=1)),
        decoder_gradient == "modified",
    )
    if system.size <= system.classes:
        raise InputError(f"vocab_size is {vocab_size}: give more tokens than the {num_classes} next tokens.")
    if system.classes % system.per_query:
        raise InputError(
            f"classes_per_query is {classes_per_query}: it must divide the number of classes, {num_classes}."
        )
    when = vector("times", times, least=0)
    if (np.diff(when) <= 0).any():
        raise InputError("times must be increasing numbers of steps, such as [1, 1e3, 1e6].")
    # The state changes with the logarithm of t: with t = s (e^x - 1) the rates stay bounded, as in `scansnap.flow`.
    scale = 1 / max(system.lr_y, system.lr_z)
    ends = np.log1p(when / scale)
    states = integrate(
        lambda x, state: system.velocity(state) * scale * np.exp(x),
        np.zeros(3 * len(system.p) + 2 * len(system.q)),
        ends,
        rtol=rtol,
        atol=atol,
        advice="lower lr_z, raise rtol, or ask for earlier times",
    )
    observed = [system.observe(state) for state in states]
    return SymmetricTrajectory(when, *(np.array(values) for values in zip(*observed, strict=True)))


@dataclass(frozen=True)
class _System:
    p: FloatArray  # (D,)
    q: FloatArray  # (G,)
    classes: int
    size: int
    lr_y: float
    lr_z: float
    per_query: int
    modified: bool

    def _parts(self, state: FloatArray) -> list[FloatArray]:
        d, g = len(self.p), len(self.q)
        return np.split(state, np.cumsum([d, d, g, d]))  # u, v, b, z of distinct, z of common tokens

    def _forward(self, state: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float, float, float, float]:
        """f over distinct then common tokens, c, g, and a_B, a_C, R, w_n . r_n."""
        u, v, b, z, z_common = self._parts(state)
        count, rest = self.classes, self.size - self.classes
        w, w_common = -(u + (count - 1) * v) / rest, -count * b / rest
        logits = np.concatenate([z, z_common])
        c = np.concatenate([self.p, self.q]) * np.exp(logits - logits.max())
        f = c / np.linalg.norm(c)
        of_distinct, of_common = f[: len(self.p)], f[len(self.p) :]
        a, b_, c_ = (of_distinct @ x + of_common @ y for x, y in ((u, b), (v, b), (w, w_common)))
        top = max(a, b_, c_)
        weights = np.exp(np.array([a, b_, c_]) - top)
        total = weights @ (1, count - 1, rest)
        a_b, a_c = weights[1] / total, weights[2] / total
        r = (count - 1) * a_b + rest * a_c
        g = np.concatenate([u * r - (count - 1) * v * a_b - rest * w * a_c, (b - w_common) * rest * a_c])
        return f, c / c.sum(), g, a_b, a_c, r, a * r - (count - 1) * b_ * a_b - rest * c_ * a_c

    def velocity(self, state: FloatArray) -> FloatArray:
        f, _, g, a_b, a_c, r, _ = self._forward(state)
        count, rest, d = self.classes, self.size - self.classes, len(self.p)
        own, other, common = r, -a_b, rest * a_c  # residual at the own, at another next token; their sum over classes
        if self.modified:
            overlap = float(f[d:] @ f[d:])
            x = 1 / (1 - overlap)
            y = -overlap * x / (1 + (count - 1) * overlap)
            own, other = x * own + y * common, x * other + y * common
            common *= x + count * y
        step = self.lr_y / count
        turn = f * (g - f * (f @ g)) * self.lr_z / count
        return np.concatenate(
            [step * f[:d] * own, step * f[:d] * other, step * f[d:] * common, turn[:d], self.per_query * turn[d:]]
        )

    def observe(self, state: FloatArray) -> tuple[FloatArray | float, ...]:
        """The fields of `SymmetricTrajectory` after `times`."""
        f, c, g, _, _, r, gain = self._forward(state)
        z, z_common = self._parts(state)[3:]
        d = len(self.p)
        xi = g / f - f @ g
        return z, z_common, c[:d], c[d:], f[d:] @ f[d:], r, gain, xi[:d], xi[d:]
