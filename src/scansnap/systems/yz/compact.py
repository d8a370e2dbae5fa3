"""The part of (Y, Z) that can ever matter, in exact form.

Y and Z are M x M, and most of both is never read or never differs from the rest:

- Only rows of Y for tokens that can occur before the query are read; only rows of Z for query tokens, and of those only
  the entries of contextual tokens.
- Two output columns of Y that start equal and are no class's next token receive equal gradients forever, since
  dY_{lj} = f_l (1[j = n] - alpha_j) and alpha_j depends on column j alone.  They are one column with a multiplicity mu.

With y_j the value shared by the mu_j columns of group j, p_j = mu_j alpha_j is the group's probability and

    logits_j = sum_l f_l y_lj,      p_j = mu_j exp(logits_j) / sum_k mu_k exp(logits_k),
    dJ/dy_lj = f_l (1[j = n] - p_j),      Y_lj moves by (dJ/dy_lj) / mu_j,
    g_l = sum_k Y_lk (1[k = n] - alpha_k) = sum_j y_lj (1[j = n] - p_j):

an ordinary softmax over groups, with the learning rate of column j divided by mu_j.  From a zero start that leaves
one column for each next token and one more, out of M.

Other architectures read more rows, and the same argument merges them:

- With the residual connection the direction v = LN(LN(c) + e_m) also has an entry for the query: its row of Y is kept.
- Standard LayerNorm subtracts the mean over all M entries, so every token that is neither contextual nor such a query
  has the same entry v_0 in the direction.  Their nu rows of Y receive equal gradients v_0 x^T forever and are read
  through their sum alone: they are one row, their mean y_0, with multiplicity nu,

      logits = sum_l nu_l v_l y_l,      dJ/dy_l = nu_l v_l x,      Y_l moves by (dJ/dy_l) / nu_l.

Heads are stacked: Y has H times these rows, head after head, and Z has H rows for each query, query after query.
Nothing here is an approximation: `tests/dynamics/test_gradients.py` and `test_architectures.py` compare it with the
full matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sequence_classes import FloatArray, IntArray, SequenceClasses
from scansnap.systems.yz.architecture import BASIC, SOFTMAX, AttentionMap, Layer


@dataclass(frozen=True)
class CompactLayout:
    """Where the entries of Y and Z that matter are kept: Y as (H D, C), Z as (Q H, S); D = S in the basic setting."""

    classes: SequenceClasses
    layer: Layer
    rows: IntArray  # (S,) the contextual tokens: their entries of Z and, as the first rows, their rows of Y are kept
    query_rows: IntArray  # queries that are not contextual tokens; their rows of Y come next
    row_multiplicity: FloatArray  # (D,) nu: 1, except for a last row that stands for all tokens without their own
    support: NDArray[np.int32]  # (K, W) row numbers of each class's tokens, padded with 0
    support_probs: FloatArray  # (K, W) their P(l|n), padded with 0
    size: NDArray[np.int32]  # (K,) tokens in each class
    query_index: IntArray  # (K,) row of Z of each class
    start_groups: IntArray | None  # (M,) equal where columns of Y start equal; None where all do
    multiplicity: FloatArray  # (C,) mu
    next_column: IntArray  # (K,) column of each class's next token

    @classmethod
    def of(cls, classes: SequenceClasses, start_groups: IntArray | None = None, layer: Layer = BASIC) -> CompactLayout:
        """The layout for columns that start equal wherever `start_groups` (M,) is equal; by default all do."""
        rows = classes.contextual_tokens
        query_rows = np.setdiff1d(classes.queries, rows) if layer.addition is not None else rows[:0]
        row_multiplicity = np.ones(len(rows) + len(query_rows))
        others = classes.vocab_size - len(row_multiplicity)
        if layer.spreads and others:
            row_multiplicity = np.append(row_multiplicity, others)
        size = np.diff(classes.offsets).astype(np.int32)
        support = np.zeros((classes.num_classes, size.max()), np.int32)
        support_probs = np.zeros(support.shape)
        for i in range(classes.num_classes):
            support[i, : size[i]] = np.searchsorted(rows, classes.support(i))
            support_probs[i, : size[i]] = classes.support_probs(i)
        next_column, multiplicity = _columns(classes, start_groups)
        queries = classes.queries
        order = np.argsort(queries)
        return cls(
            classes=classes,
            layer=layer,
            rows=rows,
            query_rows=query_rows,
            row_multiplicity=row_multiplicity,
            support=support,
            support_probs=support_probs,
            size=size,
            query_index=order[np.searchsorted(queries, classes.query, sorter=order)],
            start_groups=start_groups,
            multiplicity=multiplicity,
            next_column=next_column,
        )

    @cached_property
    def column_of_token(self) -> IntArray:
        """(M,) column of y for each output token; made when it is asked for, since M may be large."""
        return _column_of_token(self.classes, self.start_groups)

    @property
    def num_rows(self) -> int:
        """S."""
        return len(self.rows)

    @property
    def num_decoder_rows(self) -> int:
        """D: rows of Y of one head."""
        return len(self.row_multiplicity)

    @property
    def decoder_tokens(self) -> IntArray:
        """The tokens that have their own row of Y, in row order."""
        return np.concatenate([self.rows, self.query_rows])

    @property
    def other_tokens(self) -> IntArray:
        """The tokens that share the last row of Y; none if they are never read."""
        if self.num_decoder_rows == len(self.decoder_tokens):
            return self.rows[:0]
        return np.setdiff1d(np.arange(self.classes.vocab_size), self.decoder_tokens)

    @property
    def own_row(self) -> IntArray:
        """(K,) the row of Y of each class's query, which the residual connection reads."""
        order = np.argsort(self.decoder_tokens)
        return order[np.searchsorted(self.decoder_tokens, self.classes.query, sorter=order)]

    @property
    def num_queries(self) -> int:
        return len(self.classes.queries)

    @property
    def num_columns(self) -> int:
        """C."""
        return len(self.multiplicity)

    @property
    def column_rate(self) -> FloatArray:
        """1/mu, the share of a group's gradient that each of its columns receives."""
        return 1.0 / self.multiplicity

    @property
    def entry_rate(self) -> FloatArray:
        """1/(mu nu): the share of a group's gradient that each entry of Y receives, (C,), or (H D, C) if rows merge."""
        if self.row_multiplicity.max() == 1:
            return self.column_rate
        return np.tile(1 / self.row_multiplicity, self.layer.heads)[:, None] * self.column_rate

    def query_entries(self) -> tuple[IntArray, IntArray]:
        """The rows of the tokens of each query's classes, as (offsets, rows): the entries of Z that can move."""
        rows = [
            np.unique(np.concatenate([self.support[i, : self.size[i]] for i in np.flatnonzero(self.query_index == q)]))
            for q in range(self.num_queries)
        ]
        return np.concatenate([[0], np.cumsum([len(r) for r in rows])]), np.concatenate(rows).astype(np.int64)

    @property
    def dense_probs(self) -> FloatArray:
        """(K, S) P(l|n)."""
        probs = np.zeros((len(self.size), self.num_rows))
        for i, size in enumerate(self.size):
            probs[i, self.support[i, :size]] = self.support_probs[i, :size]
        return probs

    def split_heads(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        """z (..., Q H, S) as (..., H, Q, S)."""
        return logits.reshape(*logits.shape[:-2], -1, self.layer.heads, self.num_rows).swapaxes(-3, -2)

    def expand_decoder(self, compact: NDArray[np.floating], *, queries: bool = False) -> NDArray[np.floating]:
        """Compact y (..., H D, C) as rows of Y for contextual tokens, or for queries (..., H, S or Q, M)."""
        by_head = compact.reshape(*compact.shape[:-2], self.layer.heads, self.num_decoder_rows, compact.shape[-1])
        rows = self.own_row[np.unique(self.query_index, return_index=True)[1]] if queries else np.arange(self.num_rows)
        return by_head[..., rows, :][..., self.column_of_token]


def _columns(classes: SequenceClasses, start_groups: IntArray | None) -> tuple[IntArray, FloatArray]:
    """The column of each class's next token, and the multiplicities of columns."""
    next_tokens = _next_tokens(classes)
    if start_groups is not None:
        column_of_token = _column_of_token(classes, start_groups)
        counts = np.bincount(column_of_token)
        next_column = column_of_token[classes.next_token]
    else:
        counts = np.append(np.ones(len(next_tokens)), classes.vocab_size - len(next_tokens))
        order = np.argsort(next_tokens)
        next_column = order[np.searchsorted(next_tokens, classes.next_token, sorter=order)]
    return next_column, counts[counts > 0].astype(np.float64)


def _column_of_token(classes: SequenceClasses, start_groups: IntArray | None) -> IntArray:
    """The column of every output token: next tokens first, in class order, then the groups that start equal."""
    next_tokens = _next_tokens(classes)
    if start_groups is None:
        columns = np.full(classes.vocab_size, len(next_tokens))
        columns[next_tokens] = np.arange(len(next_tokens))
        return columns
    groups = np.asarray(start_groups).copy()
    # A next token is pushed up by the sequences of its classes and so leaves its group.
    groups[next_tokens] = groups.max() + 1 + np.arange(len(next_tokens))
    _, group = np.unique(groups, return_inverse=True)
    num_groups = int(group.max()) + 1
    rank = np.full(num_groups, -1, np.int64)
    rank[group[next_tokens]] = np.arange(len(next_tokens))
    rank[rank < 0] = np.arange(len(next_tokens), num_groups)
    return rank[group]


def _next_tokens(classes: SequenceClasses) -> IntArray:
    """The next tokens, in order of their first class."""
    return classes.next_token[np.sort(np.unique(classes.next_token, return_index=True)[1])]


def attention_of_classes(
    layout: CompactLayout, logits: NDArray[np.floating], probs: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """c_n (Eq. 5) of every class (..., H, K, S) from the exact P(l|n) and learned logits z (..., H, Q, S).

    `probs` (..., K, S) replaces P(l|n) if positions weigh tokens; only ratios matter.
    """
    per_head = None if probs is None else probs[..., None, :, :]
    attention_map = layout.layer.map
    if attention_map == SOFTMAX:
        return _softmax_of_classes(layout, logits, per_head)
    return _mapped(layout, attention_map, logits, per_head)


def _softmax_of_classes(
    layout: CompactLayout, logits: NDArray[np.floating], probs: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    z = logits.astype(np.float64)[..., layout.query_index[:, None], layout.support]  # (..., K, W)
    # Row-major, so that sums over tokens have the same order for any number of runs.
    z = np.ascontiguousarray(np.where(layout.support_probs > 0, z, -np.inf))
    with np.errstate(invalid="ignore"):  # a diverged run's logits are not finite, and neither is its attention
        weights = np.exp(z - z.max(-1, keepdims=True))
        weights = weights * (layout.support_probs if probs is None else _on_support(layout, probs))
        weights /= weights.sum(-1, keepdims=True)
    attention = np.zeros((*logits.shape[:-2], len(layout.size), layout.num_rows))
    for i, size in enumerate(layout.size):
        attention[..., i, layout.support[i, :size]] = weights[..., i, :size]
    return attention


def _on_support(layout: CompactLayout, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities (..., K, S) at each class's own tokens (..., K, W), 0 for padding."""
    index = np.broadcast_to(layout.support.astype(np.int64), (*probs.shape[:-2], *layout.support.shape))
    return np.take_along_axis(probs, index, axis=-1) * (layout.support_probs > 0)


def _mapped(
    layout: CompactLayout,
    attention_map: AttentionMap,
    logits: NDArray[np.floating],
    probs: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """The same for any map, divided by its sum over tokens."""
    import torch

    weights = layout.dense_probs if probs is None else probs
    z = torch.from_numpy(logits.astype(np.float64)[..., layout.query_index, :])
    attention = attention_map.forward(z, torch.from_numpy(weights).log()).detach().numpy()
    return attention / attention.sum(-1, keepdims=True)


def probs_by_bucket(layout: CompactLayout) -> NDArray[np.float64]:
    """P_g(l|n) times the share of bucket g (K, G, W) at each class's own tokens; P(l|n) if there are no positions."""
    classes = layout.classes
    if not classes.num_buckets:
        return layout.support_probs[:, None]
    inside = np.arange(layout.support.shape[1]) < layout.size[:, None]
    index = np.broadcast_to(layout.support[:, None], (len(inside), classes.num_buckets, inside.shape[1]))
    return np.take_along_axis(classes.bucket_probs, index, axis=2) * inside[:, None]
