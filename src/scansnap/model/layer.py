"""The 1-layer transformer in (Y, Z), written plainly: Eqs. 1, 2 and 15 on one-hot sequences, with autograd.

This is the model as the paper defines it, M x M matrices and all; nothing in it knows of sequence classes.  Training
uses `dynamics`, which must agree with it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def attend(scores: Tensor, embeddings: Tensor) -> Tensor:
    """X^T b with b the softmax of the scores over contextual positions (B, T-1); embeddings (B, T-1, M)."""
    return (torch.softmax(scores, dim=1)[:, None] @ embeddings).squeeze(1)


def normalize(x: Tensor) -> Tensor:
    """LN(x) = x / |x|_2."""
    return x / x.norm(dim=-1, keepdim=True)


class YZTransformer(nn.Module):
    """Logits = Y^T LN(X^T b), b = softmax over contextual positions of Z[x_T, x_t]; the query attends not to itself."""

    def __init__(self, vocab_size: int, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.decoder = nn.Parameter(torch.zeros(vocab_size, vocab_size, dtype=dtype))  # Y
        self.attention_logits = nn.Parameter(torch.zeros(vocab_size, vocab_size, dtype=dtype))  # Z

    def forward(self, sequences: Tensor) -> Tensor:
        """Logits over next tokens (B, M) for sequences x_1 ... x_T (B, T)."""
        context, query = sequences[:, :-1], sequences[:, -1]
        one_hot = nn.functional.one_hot(context, self.vocab_size).to(self.decoder.dtype)  # (B, T-1, M)
        scores = self.attention_logits[query].gather(1, context)  # (B, T-1)
        return normalize(attend(scores, one_hot)) @ self.decoder

    def loss(self, sequences: Tensor, next_tokens: Tensor) -> Tensor:
        """-J (Eq. 15): mean cross-entropy of the next tokens (B,)."""
        return nn.functional.cross_entropy(self(sequences), next_tokens)
