"""Which words are distinct for a label: a z statistic, its exact chance, and the correction for many words.

N texts, n_k of them with label k; word l is in c of them, a of which have label k.  If the word says nothing about the
label, then the c texts are a random choice out of N, and a is hypergeometric with

    mean  c q,    variance  c q (1 − q) (N − c)/(N − 1),    q = n_k/N,

so that z = (a − c q)/sd.  For rare words z is far from normal, so the chance of an a this large is the exact tail
P(A ≥ a), the sum of

    P(A = a) (1 + r_a + r_a r_{a+1} + ...),
    r_i = P(A = i + 1)/P(A = i) = (n_k − i)(c − i) / ((i + 1)(N − n_k − c + i + 1)).

**Many words.**  With m pairs (word, label), call one beyond chance at level α if its p ≤ α/m (Bonferroni).  Then the
chance that *any* pair is called so, where no word says anything, is at most m α/m = α, whatever their dependence.  But
most words are rare, and a rare word cannot be beyond chance however pure it is: the smallest p that c and n_k allow is

    p_min = P(A = min(c, n_k)).

Tarone (1990): take the smallest k such that at most k pairs have p_min ≤ α/k, and call pairs with p ≤ α/k distinct.
The others cannot be called so, whence the chance of any false one is at most k α/k = α as before, and k is below m.
p_min depends on c and n_k alone, which the hypothesis holds fixed, so that the choice of k is no peeking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SMALL_TERM = 1e-12
"""Terms of the tail that no longer matter."""

LEAST_Z = 1.0
"""Below this no p is small enough to matter, and it is not computed."""


@dataclass(frozen=True)
class Distinctness:
    """How distinct words are for each label (V, K)."""

    z: FloatArray
    p: FloatArray  # 1 where z is below `LEAST_Z`
    smallest_p: FloatArray  # p_min
    num_tests: int  # k, which Bonferroni's m is replaced with

    def corrected(self) -> FloatArray:
        """p times k: a pair at most `level` is beyond chance."""
        return np.minimum(1.0, self.p * self.num_tests)

    def is_testable(self, level: float) -> NDArray[np.bool_]:
        """Which pairs could be beyond chance, if they were pure."""
        return self.smallest_p <= level / self.num_tests


def distinctness(with_word: IntArray, rows: IntArray, level: float) -> Distinctness:
    """How distinct words are, from texts of each label with each word (V, K) and texts of each label (K,)."""
    occurrences = with_word.sum(axis=1, keepdims=True)
    z = z_statistic(with_word, rows)
    p = np.ones(z.shape)
    high = z >= LEAST_Z
    c, n = (np.broadcast_to(values, z.shape)[high] for values in (occurrences, rows))
    p[high] = upper_tail(with_word[high], c, n, int(rows.sum()))
    smallest = smallest_tail(np.broadcast_to(occurrences, z.shape), rows, int(rows.sum()))
    return Distinctness(z, p, smallest, number_of_tests(smallest.ravel(), level))


def z_statistic(with_word: IntArray, rows: IntArray) -> FloatArray:
    """(V, K) how many standard deviations a is above its mean; 0 where it cannot vary."""
    total = rows.sum()
    c, q = with_word.sum(axis=-1, keepdims=True), rows / total
    variance = c * q * (1 - q) * (total - c) / max(1, total - 1)
    return np.divide(with_word - c * q, np.sqrt(variance), out=np.zeros(with_word.shape), where=variance > 0)


def upper_tail(a: IntArray, c: IntArray, n: IntArray, total: int) -> FloatArray:
    """P(A ≥ a) of hypergeometric variables: c texts out of `total`, n of which have the label.

    `a` must be above the mean, where the ratio of terms falls from below one.
    """
    largest = np.minimum(c, n)
    i = a.astype(np.float64)
    p = _log_probability(a, c, n, total)
    term, tail = np.ones(len(i)), np.ones(len(i))
    active = np.flatnonzero(i < largest)
    while len(active):
        x, cc, nn = i[active], c[active], n[active]
        term[active] *= (nn - x) * (cc - x) / ((x + 1) * (total - nn - cc + x + 1))
        tail[active] += term[active]
        i[active] += 1
        active = active[(i[active] < largest[active]) & (term[active] > SMALL_TERM * tail[active])]
    return np.minimum(1.0, np.exp(p) * tail)


def smallest_tail(c: IntArray, n: IntArray, total: int) -> FloatArray:
    """The smallest P(A ≥ a) that c and n allow: P(A = min(c, n))."""
    n = np.broadcast_to(n, c.shape)
    return np.exp(_log_probability(np.minimum(c, n), c, n, total))


def _log_probability(a: IntArray, c: IntArray, n: IntArray, total: int) -> FloatArray:
    """log P(A = a) = log [C(n, a) C(N − n, c − a) / C(N, c)]."""
    return _log_choose(n, a) + _log_choose(total - n, c - a) - _log_choose(np.full(np.shape(c), total), c)


def _log_choose(n: IntArray, k: IntArray) -> FloatArray:
    return special.gammaln(n + 1.0) - special.gammaln(k + 1.0) - special.gammaln(n - k + 1.0)


def number_of_tests(smallest: FloatArray, level: float) -> int:
    """Tarone's k: the smallest number such that at most k pairs can be beyond chance at level/k."""
    ordered = np.sort(smallest)
    low, high = 1, max(1, len(ordered))
    while low < high:  # the number of such pairs falls with k, so that the condition, once met, stays met
        middle = (low + high) // 2
        if np.searchsorted(ordered, level / middle, side="right") <= middle:
            high = middle
        else:
            low = middle + 1
    return low
