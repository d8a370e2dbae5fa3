"""The 1-layer transformer in (Y, Z), written plainly: Eqs. 1, 2 and 15 on one-hot sequences, with autograd.

This is the model as the paper defines it, M x M matrices and all; nothing in it knows of sequence classes.  Training
uses `dynamics`, which must agree with it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scansnap.model.architecture import Architecture


def attend(scores: Tensor, embeddings: Tensor) -> Tensor:
    """X^T b with b the softmax of the scores over contextual positions (B, T-1); embeddings (B, T-1, M)."""
    return (torch.softmax(scores, dim=1)[:, None] @ embeddings).squeeze(1)


def normalize(x: Tensor, normalization: str = "l2") -> Tensor:
    """LN(x) = x / |x|_2; for "layer" the mean is subtracted first."""
    if normalization == "layer":
        x = x - x.mean(dim=-1, keepdim=True)
    return x / x.norm(dim=-1, keepdim=True)


class YZTransformer(nn.Module):
    """Logits = Y^T LN(X^T b), b = softmax over contextual positions of Z[x_T, x_t]; the query attends not to itself.

    `normalization`, `residual` and `heads` are those of `Architecture`: another LN, LN(LN(X^T b) + x_T) in its place,
    and several layers whose logits add; Y and Z of several heads are (H, M, M).
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        normalization: str = "l2",
        residual: bool = False,
        heads: int = 1,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.architecture = Architecture.checked(normalization=normalization, residual=residual, heads=heads)
        shape = (vocab_size, vocab_size) if heads == 1 else (heads, vocab_size, vocab_size)
        self.decoder = nn.Parameter(torch.zeros(shape, dtype=dtype))  # Y
        self.attention_logits = nn.Parameter(torch.zeros(shape, dtype=dtype))  # Z

    def forward(self, sequences: Tensor) -> Tensor:
        """Logits over next tokens (B, M) for sequences x_1 ... x_T (B, T)."""
        if self.architecture.heads == 1:
            return self._head(self.decoder, self.attention_logits, sequences)
        heads = zip(self.decoder, self.attention_logits, strict=True)
        return torch.stack([self._head(y, z, sequences) for y, z in heads]).sum(0)

    def _head(self, decoder: Tensor, attention_logits: Tensor, sequences: Tensor) -> Tensor:
        context, query = sequences[:, :-1], sequences[:, -1]
        one_hot = nn.functional.one_hot(context, self.vocab_size).to(decoder.dtype)  # (B, T-1, M)
        scores = attention_logits[query].gather(1, context)  # (B, T-1)
        direction = normalize(attend(scores, one_hot), self.architecture.normalization)
        if self.architecture.residual:
            own = nn.functional.one_hot(query, self.vocab_size).to(decoder.dtype)
            direction = normalize(direction + own, self.architecture.normalization)
        return direction @ decoder

    def loss(self, sequences: Tensor, next_tokens: Tensor) -> Tensor:
        """-J (Eq. 15): mean cross-entropy of the next tokens (B,)."""
        return nn.functional.cross_entropy(self(sequences), next_tokens)
