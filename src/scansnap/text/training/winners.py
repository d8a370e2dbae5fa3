"""The rows of Z of some queries: which tokens win their attention."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from scansnap.text.model.yz import YZText

WINNERS = 10
"""Tokens with the largest attention logits of a query that are recorded."""


class Winners:
    """Reads the rows of Z of some queries; the layer and the head, of which there is one, are the first axes."""

    def __init__(self, model: YZText, queries: NDArray[np.int64]) -> None:
        self._model, self._queries = model, torch.from_numpy(queries)

    def measure(self) -> dict[str, NDArray[np.float64]]:
        """The tokens (layer, head, query, rank) with the largest logits, and these; NaN if fewer are above 0.

        All logits start at 0, so that those above it have gained.
        """
        top = self._rows().topk(min(WINNERS, self._model.shape.vocab_size), 1)
        has_gained = top.values > 0
        values = {"winner": top.indices.double(), "winner_logit": top.values.double()}
        return {name: v.masked_fill(~has_gained, math.nan)[None, None].cpu().numpy() for name, v in values.items()}

    def logits(self) -> NDArray[np.float64]:
        """The rows of Z (layer, head, query, token)."""
        return self._rows()[None, None].double().cpu().numpy()

    def _rows(self) -> torch.Tensor:
        return self._model.attention_logits[self._queries.to(self._model.attention_logits.device)]
