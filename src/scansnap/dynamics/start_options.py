"""Where training starts, as options."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.dynamics.position_bias import BiasType, PositionBias
from scansnap.dynamics.prior import Prior, PriorType
from scansnap.runtime.errors import InputError
from scansnap.validation import checks
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.options import Options, option

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


@dataclass(frozen=True, kw_only=True)
class StartOptions(Options):
    """The start of training."""

    init: Init = field(
        default="zeros",
        metadata=option(
            "Start: <zeros, or|zeros,> uniform (each entry of Y and Z in ±1/√M)<|, or a pair of arrays>.",
            InitType(),
            listed=True,
        ),
    )
    init_scale_z: float = field(default=1.0, metadata=option("Factor on the width of Z's uniform start.", least=0))
    attention_prior: Prior | None = field(
        default=None,
        metadata=option(
            "Logits added to Z for tokens or kinds of tokens, as "
            "<common=-2 or the=-1,cat=0.5|{'common': -2} or {'the': -1, 'cat': 0.5}>.",
            PriorType(),
            separator="/",
            listed=True,
        ),
    )
    position_bias: PositionBias | None = field(
        default=None,
        metadata=option(
            "Logits by bucket of positions, nearest first, as "
            "<0,-1,-2, or alibi=SLOPE|[0, -1, -2], or {'alibi': slope}>; for classes with positions.",
            BiasType(),
            separator="/",
            listed=True,
        ),
    )
    learn_position_bias: bool = field(
        default=False, metadata=option("Whether the logits by position are learned, at the rate of Z.")
    )

    def check_start(self) -> None:
        """Refuse a start that contradicts itself."""
        if self.init_scale_z != 1 and self.init != "uniform":
            start = repr(self.init) if isinstance(self.init, str) else "a pair of arrays"
            raise InputError(
                f"init_scale_z is {self.init_scale_z:g} but init is {start}: it scales only the start 'uniform'."
            )
