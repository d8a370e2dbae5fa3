"""SGD without momentum or weight decay, with clipping, that touches only what a batch has changed.

A batch of a few hundred tokens changes at most as many rows of the embedding, but its norm, clipping, update and
clearing would each read or write the whole table.  Clipping by c = min(1, clip/(norm + 1e-6)) is part of the rate,
w - (lr c) g, which saves another pass over every gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.text.model.transformer import TextTransformer
from scansnap.text.training.options import TextOptions


class PlainSGD:
    """Updates a model from its gradients, and clears those of the embedding, to which the next batch adds."""

    def __init__(self, model: TextTransformer, options: TextOptions) -> None:
        attention = {id(parameter) for parameter in model.attention_parameters()}
        self._embedding, self._lr_y, self._clip = model.embedding, options.lr_y, options.clip
        self._others = [
            (parameter, options.rate_z if id(parameter) in attention else options.lr_y)
            for parameter in model.parameters()
            if parameter is not model.embedding
        ]

    @torch.no_grad()
    def step(self, inputs: Tensor, rate_share: float = 1.0) -> None:
        """One update after a batch of `inputs`, at a share of the rates."""
        table = self._embedding.grad
        assert table is not None
        seen = inputs.unique()
        rows = table[seen]
        gradients = [(p, p.grad, lr) for p, lr in self._others if p.grad is not None]
        share = rate_share
        if self._clip is not None:
            norms = torch.stack([torch.linalg.vector_norm(g) for g in (rows, *(g for _, g, _ in gradients))])
            share *= float((self._clip / (torch.linalg.vector_norm(norms) + 1e-6)).clamp(max=1.0))
        for parameter, gradient, lr in gradients:
            parameter.add_(gradient, alpha=-lr * share)
        self._embedding.index_add_(0, seen, rows, alpha=-self._lr_y * share)
        table[seen] = 0.0
