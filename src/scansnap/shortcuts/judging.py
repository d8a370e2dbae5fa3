"""Which features predict a label: the test of every feature, its correction, what explains it, and the verdict.

**The test.**  N different texts, n_k of them with label k; feature f is in c of them, a of which have label k.  If the
feature says nothing about the label, then the c texts are a random choice out of N, and a is hypergeometric with

    mean  c q,    variance  c q (1 − q) (N − c)/(N − 1),    q = n_k/N,

so that z = (a − c q)/sd.  For rare features z is far from normal, so p is the exact tail P(A ≥ a).

**Many features.**  With m pairs (feature, label), call one beyond chance at level α if its p ≤ α/m (Bonferroni).  Then
the chance that *any* pair is called so, where no feature says anything, is at most m α/m = α, whatever their
dependence.  But most features are rare, and a rare one cannot be beyond chance however pure it is: the smallest p that
c and n_k allow is

    p_min = P(A = min(c, n_k)).

Tarone (1990): take the smallest k such that at most k pairs have p_min ≤ α/k, and call pairs with p ≤ α/k distinct.
The others cannot be called so, whence the chance of any false one is at most k α/k = α as before, and k is below m.
p_min depends on c and n_k alone, which the hypothesis holds fixed, so that the choice of k is no peeking.

**Explanations.**  A feature that is beyond chance may be so through another one: long texts have more of every word.
Let the other feature part the texts into strata s (those with it and those without; for length, twentieths of the
texts), with the shares q_s of the label.  Texts with f, spread over the strata as they are, have the label in the share
q_f = Σ_s c_s q_s/c if f itself says nothing.  The other feature *explains* f if a is not beyond chance as a binomial
variable with c trials and q_f.  Features of the whole text explain all that are less distinct (smaller z), and words
explain less distinct features of the whole text.  A pair or a position of a word is explained by its words if its share
is not beyond chance among their texts (hypergeometric).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from scansnap.shortcuts.features import NESTED_KINDS, PLAIN_KINDS, IntArray
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.result import Control, Reason
from scansnap.shortcuts.texts import LabeledTexts

FloatArray = NDArray[np.float64]

LEAST_Z = 1.0
"""Below this no p is small enough to matter, and it is not computed."""

DISTINCT_Z = 2.0
"""The z from which a feature looks distinct."""

STRATA = 20
EXPLAINING_WORDS = 50
"""The most distinct words, which may explain a feature of the whole text."""


@dataclass(frozen=True)
class Distinctness:
    """How distinct features are for each label (V, K)."""

    z: FloatArray
    p: FloatArray  # 1 where z is below `LEAST_Z`
    smallest_p: FloatArray  # p_min
    num_tests: int  # k, which replaces Bonferroni's m
    needed_p: float  # the level over k: a pair with at most this p is beyond chance

    @property
    def is_beyond_chance(self) -> NDArray[np.bool_]:
        """(V, K) which pairs are distinct beyond chance."""
        return self.p <= self.needed_p


def distinctness(with_feature: IntArray, rows: IntArray, level: float) -> Distinctness:
    """How distinct features are, from texts of each label with each feature (V, K) and texts of each label (K,)."""
    total = int(rows.sum())
    occurrences = np.broadcast_to(with_feature.sum(axis=1, keepdims=True), with_feature.shape)
    label_rows = np.broadcast_to(rows, with_feature.shape)
    z = z_statistic(with_feature, rows)
    p = np.ones(z.shape)
    high = z >= LEAST_Z
    p[high] = stats.hypergeom.sf(with_feature[high] - 1, total, label_rows[high], occurrences[high])
    different, place = np.unique(occurrences[:, 0], return_inverse=True)
    smallest = stats.hypergeom.pmf(np.minimum(different[:, None], rows), total, rows, different[:, None])[place]
    num_tests = number_of_tests(smallest.ravel(), level)
    return Distinctness(z, p, smallest, num_tests, level / num_tests)


def z_statistic(with_feature: IntArray, rows: IntArray) -> FloatArray:
    """(V, K) how many standard deviations a is above its mean; 0 where it cannot vary."""
    total = rows.sum()
    c, q = with_feature.sum(axis=-1, keepdims=True), rows / total
    variance = c * q * (1 - q) * (total - c) / max(1, total - 1)
    return np.divide(with_feature - c * q, np.sqrt(variance), out=np.zeros(with_feature.shape), where=variance > 0)


def number_of_tests(smallest: FloatArray, level: float) -> int:
    """Tarone's k: the smallest number such that at most k pairs can be beyond chance at level/k."""
    k = np.arange(1, max(1, len(smallest)) + 1)
    return int(k[np.searchsorted(np.sort(smallest), level / k, side="right") <= k][0])


@dataclass(frozen=True)
class Judged:
    """Features that look distinct, shortcuts first, then by z."""

    evidence: Distinctness  # of all features
    with_feature: IntArray  # (V, K)
    rows: IntArray  # (K,)
    feature: IntArray  # (n,)
    label: IntArray  # (n,) the label that each is most distinct for
    reasons: list[tuple[Reason, ...]]
    explained_by: list[int | None]  # features


def judge(texts: LabeledTexts, options: ShortcutOptions) -> Judged:
    """The features that look distinct for a label, or are so beyond chance, or would be if copies counted."""
    own = ~texts.is_test
    with_feature, rows = texts.counts(own)
    evidence = distinctness(with_feature, rows, options.level)
    all_rows = distinctness(*texts.counts(own * texts.copies), options.level)
    beyond, by_copies = evidence.is_beyond_chance, all_rows.is_beyond_chance
    distinct = np.where(beyond.any(axis=1, keepdims=True), np.where(beyond, evidence.z, -np.inf), evidence.z)
    distinct = np.where(~beyond.any(axis=1, keepdims=True) & by_copies, all_rows.z, distinct)
    chosen = np.flatnonzero(beyond.any(axis=1) | by_copies.any(axis=1) | (evidence.z.max(axis=1) >= DISTINCT_Z))
    label = distinct[chosen].argmax(axis=1)
    at = chosen, label
    is_beyond = beyond[at]
    explained = _explanations(texts, evidence, chosen[is_beyond], label[is_beyond])
    copied = ~is_beyond & by_copies[at]
    rare = ~is_beyond & (evidence.smallest_p[at] > evidence.needed_p)
    reasons: list[tuple[Reason, ...]] = []
    for i, feature in enumerate(chosen.tolist()):
        marks: dict[Reason, bool] = {
            "copies": copied[i],
            "rare": rare[i],
            "chance": not (is_beyond[i] or rare[i]),
            "explained": is_beyond[i] and feature in explained,
        }
        reasons.append(tuple(reason for reason, holds in marks.items() if holds))
    order = sorted(range(len(chosen)), key=lambda i: (bool(reasons[i]), -evidence.z[chosen[i], label[i]]))
    return Judged(
        evidence,
        with_feature,
        rows,
        chosen[order],
        label[order],
        [reasons[i] for i in order],
        [explained.get(int(chosen[i])) for i in order],
    )


def _explanations(texts: LabeledTexts, evidence: Distinctness, chosen: IntArray, label: IntArray) -> dict[int, int]:
    """The feature that explains each of some features that are beyond chance, if one does."""
    features, parents = texts.table.features, texts.table.parents
    own = ~texts.is_test
    kind = np.array([features[i].kind for i in chosen])
    is_plain = np.isin(kind, PLAIN_KINDS)
    # among equals, a pattern is simpler than its words, and a word simpler than length and casing
    rank = np.where(np.isin(kind, ("length", "casing")), 2, np.where(is_plain, 0, 1))
    order = np.lexsort((rank, -evidence.z[chosen, label].round(6)))
    chosen, label, kind, is_plain = chosen[order], label[order], kind[order], is_plain[order]
    explained: dict[int, int] = {}
    has = texts.table.has[:, chosen].tocsr()[own]
    label_of = texts.label[own]
    c = np.asarray(has.sum(axis=0))
    a = np.array([has[label_of == k].sum(axis=0) for k in range(len(texts.labels))])[label, np.arange(len(label))]

    def explain(by: int, strata: IntArray, wanted: NDArray[np.bool_]) -> None:
        """Mark the wanted features that these strata explain."""
        size = int(strata.max(initial=0)) + 1
        share = np.zeros((size, len(texts.labels)))
        np.add.at(share, (strata, label_of), 1.0)
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1)
        spread = sparse.csr_array((np.ones(len(strata)), (np.arange(len(strata)), strata)), (len(strata), size))
        in_strata = np.asarray((has.T @ spread).todense())  # (m, S)
        expected = (in_strata * share[:, label].T).sum(axis=1) / c
        p = stats.binom.sf(a - 1, c, np.clip(expected, 0.0, 1.0))
        for i in np.flatnonzero(wanted & (p > evidence.needed_p)).tolist():
            explained.setdefault(int(chosen[i]), by)

    lengths = texts.length[own]
    edges = np.unique(np.quantile(lengths, np.arange(1, STRATA) / STRATA))
    twentieth = np.searchsorted(edges, lengths)
    is_word = kind == "word"
    explaining_words = np.flatnonzero(is_word)[:EXPLAINING_WORDS]
    for i in np.flatnonzero(is_plain | np.isin(np.arange(len(kind)), explaining_words)).tolist():
        later = np.arange(len(chosen)) > i
        wanted = later if is_plain[i] else later & is_plain
        if int(chosen[i]) not in explained and wanted.any():
            strata = twentieth if kind[i] == "length" else has[:, [i]].toarray()[:, 0].astype(np.int64)
            explain(int(chosen[i]), strata, wanted)
    with_feature, _ = texts.counts(own)
    for i in np.flatnonzero(np.isin(kind, NESTED_KINDS)).tolist():
        for word in parents[chosen[i]]:
            of_word = with_feature[word]
            p = stats.hypergeom.sf(a[i] - 1, of_word.sum(), of_word[label[i]], c[i])
            if p > evidence.needed_p:
                explained.setdefault(int(chosen[i]), word)
    return explained


def control(texts: LabeledTexts, judged: Judged, options: ShortcutOptions) -> Control:
    """Features with a large z for some label, and those beyond chance, before and after the labels are shuffled."""
    own, shuffled = ~texts.is_test, texts.label.copy()
    shuffled[own] = np.random.default_rng([options.seed, 1]).permutation(texts.label[own])
    both = judged.evidence, distinctness(*texts.counts(own, shuffled), options.level)
    looking = [int((evidence.z >= DISTINCT_Z).any(axis=1).sum()) for evidence in both]
    beyond = [int(evidence.is_beyond_chance.any(axis=1).sum()) for evidence in both]
    return Control(*looking, *beyond)
