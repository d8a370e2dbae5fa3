"""The attention that Hugging Face models use during a look.

Their models look up attention and the mask that goes with it by a name in their configuration, in open lists.  During
a look the name is that of a function that tells of the queries and keys it is given, and then computes the same
attention, with the boolean masks of their `sdpa`; afterwards the name is the one before, whichever it was.  What `sdpa`
does not do (soft-capping, sinks) is computed here in pieces, so that T x T weights are never formed.

No key-value cache is made during a look: it would only take memory.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn

from scansnap.monitor.calls import ProductCall
from scansnap.monitor.chosen_rows import ChosenRows
from scansnap.monitor.sight import Sight, as_autocast

NAME = "scansnap_watch"
"""The name under which the models find the function."""

CHANGED = {"_attn_implementation_internal": NAME, "use_cache": False}
"""What a configuration says during a look."""

_looking: ContextVar[Sight] = ContextVar("the sight that sees")


@contextmanager
def seen_by(sight: Sight, model: nn.Module) -> Iterator[None]:
    """Let a model's attention be seen, if it is one of transformers'."""
    configurations = _configurations(model)
    if not configurations:
        yield
        return
    _register()
    before = [(c, name, c.__dict__[name]) for c in configurations for name in CHANGED if name in c.__dict__]
    token = _looking.set(sight)
    try:
        for configuration, name, _ in before:
            configuration.__dict__[name] = CHANGED[name]
        yield
    finally:
        for configuration, name, value in before:
            configuration.__dict__[name] = value
        _looking.reset(token)


def _configurations(model: nn.Module) -> list[Any]:
    """The configurations by which modules look up their attention, each once."""
    if "transformers" not in sys.modules:
        return []
    objects = {id(c): c for c in (module.__dict__.get("config") for module in model.modules()) if c is not None}
    return [c for c in objects.values() if "_attn_implementation_internal" in getattr(c, "__dict__", {})]


def _register() -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if NAME not in ALL_ATTENTION_FUNCTIONS:
        ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    length = query.shape[2]
    asked = getattr(module, "is_causal", True) if is_causal is None else is_causal
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    call = ProductCall(
        *as_autocast(query, key, value),
        scale,
        mask=attention_mask,
        bias=position_bias,
        is_causal=bool(asked) and attention_mask is None and length > 1,
        softcap=softcap,
        sink=s_aux,
        is_cross=bool(getattr(module, "is_cross_attention", False)),
    )
    rows = ChosenRows.all(query.shape[0], length, query.device)

    def run() -> Tensor:
        """(B, T, H, e)."""
        if softcap is None and s_aux is None:
            bias: Any = {} if position_bias is None else {"position_bias": position_bias}
            output, _ = sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout=0.0, scaling=scaling, is_causal=is_causal, **bias
            )
            return output
        return call.output(rows).to(call.query.dtype).transpose(1, 2).contiguous()

    def returned(result: Tensor, chosen: ChosenRows) -> Tensor:
        return chosen.of(result.transpose(1, 2))

    return _looking.get().see(module, call, run, returned=returned, expected=call.output), None
