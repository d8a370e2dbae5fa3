"""A user's own parts of a layer, tried on a small example before anything runs.

A wrong shape would fail deep inside an engine, and a wrong sum would give wrong numbers in silence: a token that is
absent must get no attention, and a row that stands for nu tokens (`systems/yz/architecture.py`) must count nu times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.runtime.errors import InputError
from scansnap.systems.yz.architecture import Addition, AttentionMap, ClosedFormMap, Layer, Normalization, TokenRows
from scansnap.validation.user_code import called, is_own


def check_own_parts(layer: Layer) -> None:
    """Refuse a user's own parts that do not do what a layer needs of them."""
    if is_own(layer.map):
        _check_map(layer.map)
    if is_own(layer.normalizer):
        _check_normalization(layer.normalizer, layer.spreads)
    if layer.addition is not None and is_own(layer.addition):
        _check_addition(layer.addition)


def _check_map(part: AttentionMap) -> None:
    name = f"the attention map {type(part).__name__}"
    z = torch.linspace(-1, 1, 48, dtype=torch.float64).reshape(2, 3, 2, 4).requires_grad_()
    log_a = torch.tensor([1.0, 2.0, 3.0, 0.0], dtype=torch.float64).log().expand(2, 3, 1, 4)
    with torch.enable_grad():
        c = _of_shape(called(name, part.forward, z, log_a), z, f"{name}: forward")
    if (c[..., -1] != 0).any():
        raise InputError(
            f"{name} attends to a token that is absent: where log_a is -inf attention must be zero, as it is after a "
            "product with log_a.exp()."
        )
    if (c < 0).any():
        raise InputError(f"{name} gives negative attention for logits between -1 and 1: give numbers of at least 0.")
    if isinstance(part, ClosedFormMap):
        slopes = called(name, part.backward, z.detach(), log_a, c.detach(), torch.ones_like(z))
        if not isinstance(slopes, tuple) or len(slopes) != 2:
            raise InputError(f"{name}: backward gives {_words(slopes)}: give the gradients by z and by ln a.")
        for slope in slopes:
            _of_shape(slope, z, f"{name}: backward")
    elif not c.requires_grad:
        raise InputError(f"{name} has no gradient by z and ln a: use torch's functions of them, without detach().")


def _check_normalization(part: Normalization, spreads: bool) -> None:
    name = f"the normalization {type(part).__name__}"
    x = torch.linspace(0.1, 1, 60, dtype=torch.float64).reshape(2, 3, 2, 5)
    x[..., 3:] = 0  # the last row stands for three tokens that do not occur
    nu = torch.tensor([1.0, 1, 1, 1, 3], dtype=torch.float64)
    every = torch.tensor([0, 1, 2, 3, 4, 4, 4])
    merged = _of_shape(called(name, part.forward, x, TokenRows(7, nu)), x, f"{name}: forward")
    if not spreads and merged[..., 3:].any():
        raise InputError(f"{name} gives an entry to tokens that do not occur: set spreads = True in its class.")
    separate = _of_shape(called(name, part.forward, x[..., every], TokenRows(7)), x[..., every], f"{name}: forward")
    if not torch.allclose(merged[..., every], separate, rtol=1e-9, atol=1e-12):
        raise InputError(
            f"{name} sums over rows, some of which stand for several tokens: use rows.mean(x), rows.length(x), or "
            "rows.weigh(x).sum(-1, keepdim=True)."
        )


def _check_addition(part: Addition) -> None:
    name = f"the residual {type(part).__name__}"
    u = torch.linspace(0.1, 1, 60, dtype=torch.float64).reshape(2, 3, 2, 5)
    query = torch.zeros_like(u)
    query[..., 1] = 1
    _of_shape(called(name, part.forward, u, query), u, f"{name}: forward")


def _of_shape(result: object, like: Tensor, what: str) -> Tensor:
    if not isinstance(result, Tensor) or result.shape != like.shape:
        raise InputError(f"{what} gives {_words(result)} for a tensor of shape {tuple(like.shape)}: give one like it.")
    if not torch.isfinite(result).all():
        raise InputError(f"{what} gives numbers that are not finite for numbers between -1 and 1, and ln a of -inf.")
    return result


def _words(result: object) -> str:
    shape = getattr(result, "shape", None)
    return type(result).__name__ if shape is None else f"a {type(result).__name__} of shape {tuple(shape)}"
