"""Sequence classes (Section 3.2): what the sequences of a data set are made of.

A class is a triple (P(l|m,n), m, n): contextual tokens l are drawn independently from P(.|m,n), the query token m comes
last, and the next token n is to be predicted.  In the paper the query is a function of the next token, m = psi(n), so
that classes are indexed by n and P(l|m,n) = P(l|n).  Here a class is a pair (m, n): in text a next token follows many
queries.  `has_psi` says whether the paper's form holds; the dynamics do not need it.

A class uses few tokens of a possibly large vocabulary, so P is stored as one short list of (token, probability) per
class; the K x M matrix is made only when `probs` is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.data.source import DataSource, Draw
from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation import checks
from scansnap.validation.user_code import code_digest, is_own

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

SUM_TOLERANCE = 1e-6
"""How far a sum of probabilities may be from one: single-precision rounding; only ratios matter."""


MOST_TOKENS = 10**8
"""The largest vocabulary allowed."""


@runtime_checkable
class SparseRows(Protocol):
    """A sparse matrix, such as SciPy's."""

    def tocsr(self) -> Any:
        """The same matrix in compressed rows."""


@dataclass(frozen=True, init=False, eq=False)
class SequenceClasses(DataSource):
    """K sequence classes over a vocabulary of M tokens.  Immutable; validated when made.

    Parameters
    ----------
    probs : K x M array, or anything with `tocsr()`
        P(l|m,n), `probs[i, l]` for class i; each row sums to one.
    query : K ids
        The query token of each class; psi, if each next token has one.
    next_token : K ids
        The token each class predicts; no two classes of one query share it.
    vocab_size : int
        M, the number of token types.
    weights : K numbers, optional
        P(n), the probability of drawing each class; uniform by default.  A class of weight 0 is a probe: it is
        evaluated and never trained.
    token_names : M strings, optional
        Used on axes and in files.

    Examples
    --------
    >>> classes = ss.SequenceClasses(
    ...     probs=[[0.5, 0.5, 0, 0, 0, 0], [0.5, 0, 0.5, 0, 0, 0]], query=[3, 3], next_token=[4, 5], vocab_size=6
    ... )
    >>> classes.common_tokens, classes.distinct_tokens(0)
    (array([0]), array([1]))
    """

    offsets: IntArray
    tokens: IntArray
    token_probs: FloatArray
    query: IntArray
    next_token: IntArray
    weights: FloatArray
    vocab_size: int
    token_names: tuple[str, ...] | None

    def __init__(
        self,
        *,
        probs: ArrayLike | SparseRows,
        query: ArrayLike,
        next_token: ArrayLike,
        vocab_size: int,
        weights: ArrayLike | None = None,
        token_names: Sequence[str] | None = None,
    ) -> None:
        size = checks.integer("vocab_size", vocab_size, least=2, most=MOST_TOKENS)
        if isinstance(probs, SparseRows):
            rows = _sparse(probs)
            _check_columns(rows.shape[1], size)
            supports = [rows.indices[a:b] for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]
            values = [rows.data[a:b] for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]
        else:
            dense = _floats(probs, "probs")
            if dense.ndim != 2:
                raise InputError(
                    f"probs has shape {dense.shape}: give one row per class and one column per token (K x M)."
                )
            _check_columns(dense.shape[1], size)
            supports = [np.flatnonzero(row) for row in dense]  # keeps NaN and negatives for the checks below
            values = [row[ids] for row, ids in zip(dense, supports, strict=True)]
        self._fill(supports, values, query, next_token, size, weights, token_names)

    @classmethod
    def from_supports(
        cls,
        *,
        tokens: Sequence[ArrayLike],
        probs: Sequence[ArrayLike],
        query: ArrayLike,
        next_token: ArrayLike,
        vocab_size: int,
        weights: ArrayLike | None = None,
        token_names: Sequence[str] | None = None,
    ) -> SequenceClasses:
        """Make classes from each class's own tokens and their probabilities, without ever making a K x M matrix."""
        for what, rows in (("tokens", tokens), ("probs", probs)):
            if not checks.is_iterable(rows) or isinstance(rows, str):
                raise InputError(f"{what} is {short_repr(rows)}: give one list per class.")
        tokens, probs = list(tokens), list(probs)
        if len(tokens) != len(probs):
            raise InputError(
                f"tokens lists {len(tokens)} classes but probs lists {len(probs)}: give one list per class."
            )
        classes = cls.__new__(cls)
        supports = [_ids(ids, f"tokens of class {i}") for i, ids in enumerate(tokens)]
        values = [_row(row, f"probs of class {i}") for i, row in enumerate(probs)]
        classes._fill(
            supports,
            values,
            query,
            next_token,
            checks.integer("vocab_size", vocab_size, least=2, most=MOST_TOKENS),
            weights,
            token_names,
        )
        return classes

    def _fill(
        self,
        supports: Sequence[NDArray[Any]],
        values: Sequence[NDArray[Any]],
        query: ArrayLike,
        next_token: ArrayLike,
        vocab_size: int,
        weights: ArrayLike | None,
        token_names: Sequence[str] | None,
    ) -> None:
        count = len(supports)
        if count == 0:
            raise InputError("there are no classes: give at least one row of probabilities.")
        query_ids = _class_ids(query, "query", count, vocab_size)
        next_ids = _class_ids(next_token, "next_token", count, vocab_size)
        names = _names(token_names, vocab_size)
        _check_pairs(query_ids, next_ids, names)
        if (own := np.flatnonzero(query_ids == next_ids)).size:
            raise InputError(
                f"class {own[0]} has the query {_called(query_ids[own[0]], names)} and predicts the same token: give "
                "it a next token other than its query."
            )
        for i, (ids, row) in enumerate(zip(supports, values, strict=True)):
            _check_support(i, ids, row, vocab_size)
        # Sort tokens and drop zero probabilities, so that equal classes are stored equally.
        order = [np.argsort(ids, kind="stable") for ids in supports]
        order = [o[values[i][o] > 0] for i, o in enumerate(order)]
        fields = {
            "offsets": np.concatenate([[0], np.cumsum([len(o) for o in order])]).astype(np.int64),
            "tokens": np.concatenate([supports[i][o] for i, o in enumerate(order)]).astype(np.int64),
            "token_probs": np.concatenate([values[i][o] for i, o in enumerate(order)]).astype(np.float64),
            "query": query_ids,
            "next_token": next_ids,
            "weights": _weights(weights, count),
        }
        for name, array in fields.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "vocab_size", vocab_size)
        object.__setattr__(self, "token_names", names)

    # --- drawing sequences --------------------------------------------------------------------------------------------

    @property
    def classes(self) -> SequenceClasses:
        """The classes themselves."""
        return self

    def draw(self, *, seeds: NDArray[np.uint64], step: int, num_sequences: int | None, length: int) -> Draw:
        """Token counts of the sequences of an update, for the run of each seed."""
        return Draw.stacked([self._counted(int(seed), step, 1, num_sequences, length) for seed in seeds])

    def draw_steps(self, seed: int, first_step: int, num_steps: int, num_sequences: int | None, length: int) -> Draw:
        """Token counts of the sequences of several updates of one seed."""
        return self._counted(seed, first_step, num_steps, num_sequences, length)

    def _counted(self, seed: int, first_step: int, num_steps: int, num_sequences: int | None, length: int) -> Draw:
        """Token counts of sequences whose contextual tokens are drawn independently from P(l|n)."""
        from scansnap.data.sampling import draw_independent

        return draw_independent(self, seed, first_step, num_steps, num_sequences, length)

    def sample_sequences(self, *, num: int, length: int, seed: int) -> tuple[IntArray, IntArray]:
        from scansnap.data.sampling import independent_sequences

        return independent_sequences(self, num, length, seed)

    # --- sizes and rows ---------------------------------------------------------------------------------------------

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.query)

    @property
    def num_buckets(self) -> int:
        """G: the number of buckets of positions; 0 if tokens do not depend on their position."""
        return 0

    @property
    def sizes(self) -> IntArray:
        """(G,) the positions in each bucket, nearest the query first."""
        return np.zeros(0, np.int64)

    @property
    def bucket_probs(self) -> FloatArray:
        """(K, G, S) sizes[g] P_g(l|n) / (T-1): the part of P(l|n) that comes from each bucket."""
        return np.zeros((self.num_classes, 0, len(self.contextual_tokens)))

    def listed_probs(self, index: int) -> list[float] | list[list[float]]:
        """P(l|n) of a class's tokens in file form: numbers, or one list of numbers per bucket of positions."""
        return self.support_probs(index).tolist()

    @cached_property
    def queries(self) -> IntArray:
        """The distinct query tokens, in order of first use."""
        _, first = np.unique(self.query, return_index=True)
        return self.query[np.sort(first)]

    @cached_property
    def contextual_tokens(self) -> IntArray:
        """The tokens that can occur in a sequence before its query, in increasing order."""
        return np.unique(self.tokens)

    @property
    def probs(self) -> FloatArray:
        """P(l|n) as a K x M matrix (made anew at each call; large for a large vocabulary)."""
        dense = np.zeros((self.num_classes, self.vocab_size))
        dense[np.repeat(np.arange(self.num_classes), np.diff(self.offsets)), self.tokens] = self.token_probs
        return dense

    def support(self, index: int) -> IntArray:
        """supp(n): the tokens that occur in class `index`."""
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < self.num_classes:
            raise InputError(
                f"there is no class {short_repr(index)}: classes are numbered from 0 to {self.num_classes - 1}."
            )
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def support_probs(self, index: int) -> FloatArray:
        """P(l|n) for the tokens of `support(index)`."""
        return self.token_probs[self.offsets[index] : self.offsets[index + 1]]

    def of_query(self, token: int) -> IntArray:
        """psi^-1(m): the classes whose query is `token`."""
        token = checks.integer("token", token)
        indices = np.flatnonzero(self.query == token)
        if not len(indices):
            raise InputError(
                f"token {token} is not a query of these classes: their queries are {checks.listed(self.queries)}."
            )
        return indices

    # --- common and distinct tokens -----------------------------------------------------------------------------------

    @property
    def has_psi(self) -> bool:
        """Whether each next token has one query, m = psi(n), as in the paper."""
        return len(np.unique(self.next_token)) == self.num_classes

    @cached_property
    def _next_count(self) -> IntArray:
        """|Omega(l)| for every contextual token l."""
        next_token = np.repeat(self.next_token, np.diff(self.offsets))
        pairs = np.unique(self.tokens * self.vocab_size + next_token)
        return np.unique(pairs // self.vocab_size, return_counts=True)[1]

    def next_tokens_of(self, token: int) -> IntArray:
        """Omega(l): the next tokens that contextual token l co-occurs with, in order of their classes."""
        token = checks.integer("token", token)
        entries = np.flatnonzero(self.tokens == token)
        next_token = self.next_token[np.searchsorted(self.offsets, entries, side="right") - 1]
        return next_token[np.sort(np.unique(next_token, return_index=True)[1])]

    @cached_property
    def common_tokens(self) -> IntArray:
        """G_CT: tokens of more than one next token, |Omega(l)| > 1."""
        return self.contextual_tokens[self._next_count > 1]

    def distinct_tokens(self, index: int) -> IntArray:
        """G_DT(n): tokens of class `index` that occur with its next token alone."""
        ids = self.support(index)
        return ids[self.kinds_of(ids) == "distinct"]

    def local_common_tokens(self, query: int) -> IntArray:
        """Tokens of more than one class of `query` (Section 7: common within psi^-1(m))."""
        ids, counts = np.unique(np.concatenate([self.support(i) for i in self.of_query(query)]), return_counts=True)
        return ids[counts > 1]

    def local_distinct_tokens(self, index: int) -> IntArray:
        """Tokens of class `index` that no other class of the same query has (Section 7)."""
        own = self.support(index)
        others = [self.support(i) for i in self.of_query(int(self.query[index])) if i != index]
        return np.setdiff1d(own, np.concatenate(others)) if others else own

    def overlap(self, first: int, second: int) -> IntArray:
        """The tokens that two classes share; the classes overlap if there are any."""
        return np.intersect1d(self.support(first), self.support(second))

    def kinds_of(self, tokens: IntArray) -> NDArray[np.str_]:
        """The role of some tokens: the first that applies of common, distinct, query, next, unused."""
        kinds = np.full(len(tokens), "unused", dtype="U8")
        distinct = self.contextual_tokens[self._next_count == 1]
        for kind, members in (
            ("next", self.next_token),
            ("query", self.query),
            ("distinct", distinct),
            ("common", self.common_tokens),
        ):
            kinds[np.isin(tokens, members)] = kind
        return kinds

    @cached_property
    def token_kinds(self) -> NDArray[np.str_]:
        """`kinds_of` every token of the vocabulary."""
        return self.kinds_of(np.arange(self.vocab_size))

    def name(self, token: int) -> str:
        """The token's name, or its id if it has none."""
        token = checks.integer("token", token, most=self.vocab_size - 1)
        return _called(token, self.token_names)

    # --- identity -----------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that are equal for equal classes, whatever their token names."""
        digest = hashlib.sha256(str(self.vocab_size).encode())
        for array in self._identity():
            digest.update(array.tobytes())
        if is_own(self):  # a user's subclass, which may draw otherwise
            digest.update(code_digest(type(self)).encode())
        return digest.hexdigest()[:16]

    def _identity(self) -> Iterable[NDArray[Any]]:
        """The arrays that define the classes."""
        return (self.offsets, self.tokens, self.token_probs, self.query, self.next_token, self.weights)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceClasses) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return int(self.fingerprint, 16)

    def __repr__(self) -> str:
        return (
            f"SequenceClasses(num_classes={self.num_classes}, vocab_size={self.vocab_size}, "
            f"queries={len(self.queries)}, contextual_tokens={len(self.contextual_tokens)}, "
            f"common_tokens={len(self.common_tokens)})"
        )


# --- checks: each says what was given, what is allowed and what to do -------------------------------------------------


def _floats(values: ArrayLike, what: str) -> FloatArray:
    array = checks.float_array(values)
    if array is None:
        raise InputError(f"{what} cannot be read as an array of numbers: give equally long rows of numbers.")
    return array


def _check_columns(columns: int, vocab_size: int) -> None:
    if columns != vocab_size:
        raise InputError(f"probs has {columns} columns but vocab_size is {vocab_size}: give one column per token.")


def _sparse(probs: SparseRows) -> Any:
    """The matrix in compressed rows, which must be real."""
    rows = probs.tocsr()
    if _floats(rows.data, "probs").ndim != 1:
        raise InputError("probs is no sparse matrix: give one row per class and one column per token (K x M).")
    return rows


def _ids(values: ArrayLike, what: str) -> IntArray:
    array = checks.float_array(values)
    if (
        array is None
        or array.ndim != 1
        or not ((np.abs(array) <= checks.LARGEST_INTEGER) & (array == np.floor(array))).all()
    ):
        raise InputError(f"{what} must be a list of token ids (whole numbers), not {short_repr(values)}.")
    return array.astype(np.int64)


def _row(values: ArrayLike, what: str) -> FloatArray:
    array = _floats(values, what)
    if array.ndim != 1:
        raise InputError(f"{what} is {short_repr(values)}: give one number for each of its tokens.")
    return array


def _class_ids(values: ArrayLike, what: str, count: int, vocab_size: int) -> IntArray:
    ids = _ids(values, what)
    if len(ids) != count:
        raise InputError(f"{what} has {len(ids)} entries for {count} classes: give one token id per class.")
    bad = (ids < 0) | (ids >= vocab_size)
    if bad.any():
        raise InputError(f"{what} holds token {ids[bad][0]}: ids run from 0 to {vocab_size - 1}.")
    return ids.copy()


def _called(token: int, names: Sequence[str] | None) -> str:
    return names[token] if names else str(token)


def _check_pairs(query_ids: IntArray, next_ids: IntArray, names: Sequence[str] | None) -> None:
    pairs, counts = np.unique(np.stack([query_ids, next_ids], 1), axis=0, return_counts=True)
    if (counts > 1).any():
        query, next_token = (int(token) for token in pairs[counts > 1][0])
        owners = np.flatnonzero((query_ids == query) & (next_ids == next_token))
        raise InputError(
            f"classes {checks.listed(owners)} have the same query {_called(query, names)} and the same next token "
            f"{_called(next_token, names)}, which determine a class: give each its own pair, or mix their "
            "probabilities into one class."
        )


def _check_support(index: int, ids: NDArray[Any], row: NDArray[Any], vocab_size: int) -> None:
    if len(ids) != len(row):
        raise InputError(f"class {index} has {len(ids)} tokens but {len(row)} probabilities: give one per token.")
    if not np.isfinite(row).all():
        raise InputError(
            f"the probabilities of class {index} contain {row[~np.isfinite(row)][0]}: give finite numbers."
        )
    if (row < 0).any():
        raise InputError(f"class {index} has the probability {row.min():g}: probabilities are at least 0.")
    if ((ids < 0) | (ids >= vocab_size)).any():
        raise InputError(
            f"class {index} holds token {ids[(ids < 0) | (ids >= vocab_size)][0]}: ids run from 0 to {vocab_size - 1}."
        )
    if len(np.unique(ids)) != len(ids):
        raise InputError(f"class {index} lists a token twice: give each token once, with its whole probability.")
    total = float(row.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise InputError(f"the probabilities of class {index} sum to {total:.9g}, not 1: divide the row by its sum.")


def _weights(weights: ArrayLike | None, count: int) -> FloatArray:
    if weights is None:
        return np.full(count, 1.0 / count)
    array = _floats(weights, "weights")
    if array.shape != (count,):
        raise InputError(f"weights has shape {array.shape} for {count} classes: give one number per class.")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError("weights must be finite numbers of at least 0: give 0 to a class that is never drawn.")
    if abs(array.sum() - 1) > SUM_TOLERANCE:
        raise InputError(f"weights sum to {array.sum():.9g}, not 1: divide them by their sum.")
    return array.copy()


def _names(names: Sequence[str] | None, vocab_size: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Sequence | np.ndarray) or not checks.is_iterable(names):
        raise InputError(f"token_names is {short_repr(names)}: give a list of names, one per token.")
    if len(names) != vocab_size:
        raise InputError(f"token_names holds {len(names)} names for {vocab_size} tokens: give one name per token.")
    return tuple(checks.text(f"the name of token {i}", name) for i, name in enumerate(names))
