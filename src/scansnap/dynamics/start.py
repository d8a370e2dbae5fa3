"""Where training starts: Y(0) and Z(0), a prior on tokens, and a bias on positions, as options and as arrays.

A prior on tokens
-----------------
`attention_prior` is added to Z before any training, token by token: attention becomes the softmax of z + z_0 + ln a.
The gradient depends on z and z_0 only through their sum, so under every update rule training with a prior is training
without one from Z(0) + z_0: the paper's "initial value as prior", which is how it is implemented here.  Results give Z
without the prior, and attention with it.

A bias on positions
-------------------
An additive bias on attention logits by relative position (Section 7), fixed or learned.

With b_g the bias of bucket g and a_gl how often token l is in it, the positions of a sequence of query m weigh

    a_l exp(z_ml) = sum_g a_gl exp(z_ml + b_g),      a_l = sum_g exp(b_g) a_gl,

so attention is the softmax of z + ln a as before, with biased counts (sizes times P_g(l|n) for T -> infinity) instead
of counts.  From dJ/d ln a_l, which for the softmax is dz_l of the sequence,

    dJ/db_g = sum_l (dJ/d ln a_l) s_gl,      s_gl = exp(b_g) a_gl / a_l,

the part of token l that comes from bucket g.  A bias that is the same in all buckets cancels, and so does any bias if
tokens do not depend on their position and sequences are long: then a_l is in proportion to P(l|n) whatever b is.  If
they do, a fixed bias is a prior on contextual tokens: it is training on other classes, sum_g w_g P_g(l|n) with w_g in
proportion to sizes[g] exp(b_g).

The bias is one vector for all queries and heads; learned, it moves at the rate eta_Z of the logits that it is added to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.runtime.errors import InputError, short_repr, unknown
from scansnap.runtime.machine import check_memory
from scansnap.systems.yz.architecture import BASIC, Layer
from scansnap.systems.yz.compact import CompactLayout
from scansnap.validation import checks
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.options import Options, option, options

DECODER_STREAM, ATTENTION_STREAM = np.uint64(2**64 - 1), np.uint64(2**64 - 2)
"""Steps -1 and -2: the random streams of the start, separate from those of any batch."""

STARTS = ("zeros", "uniform")


@dataclass(frozen=True, eq=False)
class StartArrays:
    """The user's own Y(0) and Z(0): (M, M), or with a leading axis for runs, and one for heads before the last two."""

    decoder: NDArray[np.float64]
    attention_logits: NDArray[np.float64]

    @property
    def digest(self) -> str:
        """A digest that identifies these arrays."""
        return hashlib.sha256(self.decoder.tobytes() + self.attention_logits.tobytes()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StartArrays) and self.digest == other.digest

    def __hash__(self) -> int:
        return int(self.digest, 16)


Init = str | tuple[ArrayLike, ArrayLike] | StartArrays


@dataclass(frozen=True)
class InitType(ArgumentType):
    """Values of the option `init`: a name, or a pair of arrays."""

    def check(self, name: str, value: Any) -> str | StartArrays:
        if isinstance(value, str):
            return checks.one_of(name, value, STARTS)
        if isinstance(value, StartArrays):
            return value
        if not (isinstance(value, Sequence) and len(value) == 2):
            raise InputError(
                f"{name} is {type(value).__name__}: give {' or '.join(map(repr, STARTS))}, or a pair of arrays (Y, Z)."
            )
        return StartArrays(_matrix("Y", value[0]), _matrix("Z", value[1]))

    def plain(self, value: str | StartArrays) -> str:
        return value if isinstance(value, str) else f"given {value.digest}"


def _matrix(name: str, values: Any) -> NDArray[np.float64]:
    if hasattr(values, "detach"):  # a tensor, or a parameter of a model
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"init's {name} cannot be read as an array of numbers.") from None
    if not np.isfinite(array).all():
        raise InputError(f"init's {name} contains NaN or infinity: give finite numbers.")
    return array


# --- a prior on tokens ----------

Prior = Mapping[str, float] | Mapping[int, float] | Sequence[float] | NDArray[np.floating]

KINDS = ("common", "distinct")

LARGEST = 1e6
"""Larger logits must be a mistake, and float32 would lose what training adds to them."""

PRIOR_WANTED = (
    "give one number for each token of the vocabulary, or a mapping from tokens or kinds of tokens to numbers, such as "
    f"{{'common': -2.0}}, none beyond ±{LARGEST:g}"
)


@dataclass(frozen=True)
class PriorType(ArgumentType):
    """Values of the option `attention_prior`."""

    def check(self, name: str, value: Any) -> dict[str, float] | tuple[float, ...]:
        if isinstance(value, Mapping):
            return {
                str(key): checks.number(f"{name} of {short_repr(key)}", logit, least=-LARGEST, most=LARGEST)
                for key, logit in value.items()
            }
        array = checks.series(name, value, PRIOR_WANTED.removeprefix("give "))
        if not (np.abs(array) <= LARGEST).all():
            raise InputError(f"{name} is {short_repr(value)}: {PRIOR_WANTED}.")
        return tuple(array.tolist())

    def read(self, name: str, text: str) -> dict[str, float]:
        try:
            return {key.strip(): float(logit) for key, logit in (part.rsplit("=", 1) for part in text.split(","))}
        except ValueError:
            raise InputError(
                f"{name} is '{text}': give tokens or kinds of tokens with their logits, as common=-2 or the=-1,cat=0.5."
            ) from None

    def plain(self, value: dict[str, float] | tuple[float, ...]) -> dict[str, float] | str:
        if isinstance(value, Mapping):
            return dict(value)
        return f"given {hashlib.sha256(np.array(value).tobytes()).hexdigest()[:16]}"


def prior_logits(
    classes: SequenceClasses, prior: Mapping[str, float] | tuple[float, ...] | None
) -> NDArray[np.float64]:
    """z_0 for the contextual tokens (S,), from one number per token of the vocabulary, or from a mapping.

    A mapping's keys are token ids, token names, or kinds of tokens ("common", "distinct"); tokens that are not named
    get 0, and a token's own number replaces that of its kind.
    """
    if prior is None:
        return np.zeros(len(classes.contextual_tokens))
    if isinstance(prior, Mapping):
        return _from_mapping(classes, prior)
    if len(prior) != classes.vocab_size:
        raise InputError(f"attention_prior has {len(prior)} numbers for {classes.vocab_size} tokens: {PRIOR_WANTED}.")
    return np.array(prior)[classes.contextual_tokens]


def _from_mapping(classes: SequenceClasses, prior: Mapping[str, float]) -> NDArray[np.float64]:
    tokens = classes.contextual_tokens
    logits = np.zeros(len(tokens))
    names = {name: token for token, name in enumerate(classes.token_names or ())}
    # Kinds first, so that single tokens override them.
    for key, logit in sorted(prior.items(), key=lambda item: item[0] not in KINDS):
        if key in KINDS:
            logits[classes.kinds_of(tokens) == key] = logit
            continue
        token = names.get(key, _id(key, classes.vocab_size))  # a name comes before an id
        if token is None:
            known = [*KINDS, *(classes.name(int(token)) for token in tokens[:6]), "..."]
            raise unknown("token in attention_prior", key, known)
        logits[tokens == token] = logit
    return logits


def _id(key: str, vocab_size: int) -> int | None:
    """The token whose id is written so, if there is one."""
    return int(key) if len(key) <= 9 and key.isdecimal() and key == str(int(key)) and int(key) < vocab_size else None


# --- a bias on positions ----------

PositionBias = Mapping[str, float] | Sequence[float] | NDArray[np.floating]

BIAS_WANTED = "one finite number for each bucket of positions, or {'alibi': slope}"


@dataclass(frozen=True)
class BiasType(ArgumentType):
    """Values of the option `position_bias`."""

    def check(self, name: str, value: Any) -> dict[str, float] | tuple[float, ...]:
        if isinstance(value, Mapping):
            if set(value) != {"alibi"}:
                raise InputError(f"{name} is {short_repr(dict(value))}: give {BIAS_WANTED}.")
            return {"alibi": checks.number(f"{name} of 'alibi'", value["alibi"])}
        return tuple(checks.series(name, value, BIAS_WANTED).tolist())

    def read(self, name: str, text: str) -> dict[str, float] | list[float]:
        try:
            if text.startswith("alibi="):
                return {"alibi": float(text.removeprefix("alibi="))}
            return [float(part) for part in text.split(",")]
        except ValueError:
            raise InputError(f"{name} is '{text}': give numbers as 0,-1,-2, or alibi=0.5.") from None

    def plain(self, value: dict[str, float] | tuple[float, ...]) -> dict[str, float] | list[float]:
        return dict(value) if isinstance(value, Mapping) else list(value)


def bias_by_bucket(
    classes: SequenceClasses, value: Mapping[str, float] | tuple[float, ...] | None
) -> NDArray[np.float64]:
    """One number for each bucket (G,): as given, or ALiBi's slope times the distance."""
    if value is None:
        return np.zeros(classes.num_buckets)
    if isinstance(value, Mapping):
        if (classes.sizes > 1).any():
            raise InputError("ALiBi's bias differs from position to position: use buckets of one position each.")
        return -float(value["alibi"]) * np.arange(1, classes.num_buckets + 1, dtype=np.float64)
    if len(value) != classes.num_buckets:
        raise InputError(
            f"position_bias has {len(value)} numbers for {classes.num_buckets} buckets of positions: give "
            f"{BIAS_WANTED}."
        )
    return np.array(value)


# --- options ----------


@options
class StartOptions(Options):
    """The start of training."""

    init: Init = option(
        "Start: <zeros, or|zeros,> uniform (each entry of Y and Z in ±1/√M)<|, or a pair of arrays>.",
        InitType(),
        default="zeros",
        listed=True,
    )
    init_scale_z: float = option("Factor on the width of Z's uniform start.", default=1.0, least=0)
    attention_prior: Prior | None = option(
        "Logits added to Z for tokens or kinds of tokens, as "
        "<common=-2 or the=-1,cat=0.5|{'common': -2} or {'the': -1, 'cat': 0.5}>.",
        PriorType(),
        default=None,
        separator="/",
        listed=True,
    )
    position_bias: PositionBias | None = option(
        "Logits by bucket of positions, nearest first, as "
        "<0,-1,-2, or alibi=SLOPE|[0, -1, -2], or {'alibi': slope}>; for classes with positions.",
        BiasType(),
        default=None,
        separator="/",
        listed=True,
    )
    learn_position_bias: bool = option("Whether the logits by position are learned, at the rate of Z.", default=False)

    def check_start(self) -> None:
        """Refuse a start that contradicts itself."""
        if self.init_scale_z != 1 and self.init != "uniform":
            start = repr(self.init) if isinstance(self.init, str) else "a pair of arrays"
            raise InputError(
                f"init_scale_z is {self.init_scale_z:g} but init is {start}: it scales only the start 'uniform'."
            )


# --- arrays ----------


@dataclass(frozen=True)
class Start:
    """Compact y (R, H D, C) and z (R, Q H, S), and the terms added to z."""

    layout: CompactLayout
    decoder: NDArray[np.floating]
    attention_logits: NDArray[np.floating]  # with the prior in it
    prior: NDArray[np.float64]  # (S,)
    position_bias: NDArray[np.float64] | None  # (G,), where tokens depend on their position

    def __getitem__(self, runs: slice) -> Start:
        return replace(self, decoder=self.decoder[runs], attention_logits=self.attention_logits[runs])


def make_start(
    classes: SequenceClasses, options: StartOptions, seeds: NDArray[np.uint64], dtype: str, layer: Layer = BASIC
) -> Start:
    """The start that the options name, one copy per seed, with the prior added to Z.

    "zeros" leaves the output columns symmetric, "uniform" draws each entry of Y and Z uniformly in +-1/sqrt(M) as the
    published runs did (Z's `init_scale_z` times as wide), and a pair (Y, Z) of M x M arrays, or of R x M x M for a
    different start in each run, is used unchanged; with several heads both have one more axis, before the last two.
    Columns of Y are merged if they start equal in every run, so a run that starts from arrays may differ by rounding
    between training alone and training beside others.
    """
    if isinstance(options.init, StartArrays):
        layout, decoder, attention_logits = _from_arrays(classes, options.init, len(seeds), dtype, layer)
    else:
        layout = start_layout(classes, options, layer)
        _check_memory(layout, len(seeds), dtype)
        if options.init == "uniform":
            different, of_run = np.unique(seeds, return_inverse=True)
            decoder, attention_logits = (entries[of_run] for entries in _uniform(layout, different, options, dtype))
        else:
            decoder, attention_logits = _zeros(layout, len(seeds), dtype)
    prior = prior_logits(classes, options.attention_prior)  # type: ignore[arg-type]  # plain since it was checked
    attention_logits[...] += prior.astype(attention_logits.dtype)
    bias = bias_by_bucket(classes, options.position_bias) if classes.num_buckets else None  # type: ignore[arg-type]
    return Start(layout, decoder, attention_logits, prior, bias)


def start_layout(classes: SequenceClasses, options: StartOptions, layer: Layer) -> CompactLayout:
    """The layout for a start given by name: output columns merge from zeros, and none merge from random entries."""
    groups = np.arange(classes.vocab_size) if options.init == "uniform" else None
    return CompactLayout.of(classes, groups, layer)


def _uniform(
    layout: CompactLayout, seeds: NDArray[np.uint64], options: StartOptions, dtype: str
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    from scansnap.data.sampling import uniform_entries, uniform_means

    decoder, attention_logits = _zeros(layout, len(seeds), dtype)
    vocab_size, heads = layout.classes.vocab_size, layout.layer.heads
    bound = vocab_size**-0.5
    own, rows = len(layout.decoder_tokens), layout.num_decoder_rows
    for head in range(heads):
        first = head * vocab_size  # rows of a head's streams; those of the first head are the basic setting's
        block = decoder[:, head * rows : (head + 1) * rows]
        uniform_entries(seeds, DECODER_STREAM, first, bound, layout.column_of_token, block[:, :own])
        if rows > own:
            uniform_means(
                seeds,
                DECODER_STREAM,
                first + own,
                len(layout.other_tokens),
                bound,
                layout.column_of_token,
                block[:, own],
            )
        uniform_entries(
            seeds,
            ATTENTION_STREAM,
            first,
            options.init_scale_z * bound,
            np.arange(layout.num_rows),
            attention_logits[:, head::heads],
        )
    return decoder, attention_logits


def _from_arrays(
    classes: SequenceClasses, arrays: StartArrays, runs: int, dtype: str, layer: Layer
) -> tuple[CompactLayout, NDArray[np.floating], NDArray[np.floating]]:
    shape = CompactLayout.of(classes, layer=layer)  # rows are the same for all groups of columns
    whole_y = _by_run("Y", arrays.decoder, classes.vocab_size, runs, layer.heads)  # (1 or R, H, M, M)
    whole_z = _by_run("Z", arrays.attention_logits, classes.vocab_size, runs, layer.heads)
    full_y = whole_y[:, :, shape.decoder_tokens]
    if len(shape.other_tokens):
        full_y = np.concatenate([full_y, whole_y[:, :, shape.other_tokens].mean(2, keepdims=True)], axis=2)
    full_y = full_y.reshape(len(full_y), -1, classes.vocab_size)  # (1 or R, H D, M)
    full_z = whole_z[:, :, classes.queries][..., classes.contextual_tokens].swapaxes(1, 2)  # (1 or R, Q, H, S)
    # Columns that start equal in every run are one group.
    columns = full_y.reshape(-1, classes.vocab_size).T
    _, groups = np.unique(columns, axis=0, return_inverse=True)
    layout = CompactLayout.of(classes, groups.reshape(-1), layer)
    _check_memory(layout, runs, dtype)
    compact_y, compact_z = _zeros(layout, runs, dtype)
    compact_y[:, :, layout.column_of_token] = full_y
    compact_z[:] = full_z.reshape(len(full_z), *compact_z.shape[1:])
    return layout, compact_y, compact_z


def _by_run(name: str, array: NDArray[np.float64], vocab_size: int, runs: int, heads: int) -> NDArray[np.float64]:
    """(1 or R, H, M, M)."""
    single = (vocab_size, vocab_size) if heads == 1 else (heads, vocab_size, vocab_size)
    if array.shape not in (single, (runs, *single)):
        raise InputError(
            f"init's {name} has shape {array.shape}: give {single}, or {(runs, *single)} for one start per run."
        )
    return array.reshape(-1, heads, vocab_size, vocab_size)


def _shapes(layout: CompactLayout, runs: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Of y and z."""
    heads = layout.layer.heads
    shape_y = (runs, heads * layout.num_decoder_rows, len(layout.multiplicity))
    return shape_y, (runs, layout.num_queries * heads, layout.num_rows)


def _zeros(layout: CompactLayout, runs: int, dtype: str) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    shape_y, shape_z = _shapes(layout, runs)
    return np.zeros(shape_y, dtype), np.zeros(shape_z, dtype)


def _check_memory(layout: CompactLayout, runs: int, dtype: str) -> None:
    shape_y, shape_z = _shapes(layout, runs)
    needed = 2 * (np.prod(shape_y, dtype=float) + np.prod(shape_z, dtype=float)) * np.dtype(dtype).itemsize
    check_memory(
        f"{runs} runs with {shape_y[1]} contextual tokens and {layout.num_columns} output columns need",
        needed,
        "start from zeros, which merges output columns, or train fewer runs at a time",
    )
