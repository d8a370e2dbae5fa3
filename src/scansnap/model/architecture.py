"""Which layer is trained: the paper's basic one, or one of those it names as extensions (Sections 3 and 7).

- `normalization`: "l2" is the paper's LN(x) = x/|x|_2; "layer" is standard LayerNorm, which subtracts the mean over all
  M entries first.  Both give unit length: LayerNorm's further factor sqrt(M) is a constant that belongs to Y and to its
  learning rate, and without it the same rates mean the same thing.
- `residual`: LN(LN(x) + e_m) with e_m the one-hot query, Section 7's residual connection in (Y, Z) form.
- `heads`: H layers side by side, each with a Z_h and a Y_h of its own, whose logits add.
- `layers`: L layers on top of each other, with `nonlinearity` between them (`model/layered.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scansnap.base.errors import InputError, unknown

NORMALIZATIONS = ("l2", "layer")
NONLINEARITIES = ("tanh", "relu")
MOST_HEADS = 1024
MOST_LAYERS = 16


@dataclass(frozen=True)
class Architecture:
    """A layer in (Y, Z)."""

    normalization: str = "l2"
    residual: bool = False
    heads: int = 1
    layers: int = 1
    nonlinearity: str = "tanh"

    @classmethod
    def checked(
        cls,
        *,
        normalization: str = "l2",
        residual: bool = False,
        heads: int = 1,
        layers: int = 1,
        nonlinearity: str = "tanh",
    ) -> Architecture:
        """The architecture, or an `InputError` that names what cannot be."""
        if normalization not in NORMALIZATIONS:
            raise unknown("normalization", normalization, NORMALIZATIONS)
        if not isinstance(residual, bool | np.bool_):
            raise InputError(f"residual is {residual!r}: give True or False.")
        if isinstance(heads, bool) or not isinstance(heads, int | np.integer) or not 1 <= heads <= MOST_HEADS:
            raise InputError(f"heads is {heads!r}: give a whole number from 1 to {MOST_HEADS:,}.")
        if isinstance(layers, bool) or not isinstance(layers, int | np.integer) or not 1 <= layers <= MOST_LAYERS:
            raise InputError(f"layers is {layers!r}: give a whole number from 1 to {MOST_LAYERS}.")
        if nonlinearity not in NONLINEARITIES:
            raise unknown("nonlinearity", nonlinearity, NONLINEARITIES)
        if layers == 1 and nonlinearity != "tanh":
            raise InputError(f"nonlinearity is '{nonlinearity}' but there is one layer: it stands between layers.")
        if layers > 1 and (normalization != "l2" or residual or heads > 1):
            raise InputError(
                f"layers is {layers}: several layers are trained with l2 normalisation, one head and the residual "
                "connection that is part of them; leave out normalization, residual and heads."
            )
        return cls(normalization, bool(residual), int(heads), int(layers), nonlinearity)


BASIC = Architecture()
"""The layer of the paper's analysis."""
