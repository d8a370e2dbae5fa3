"""The regular parameterization: embeddings U and projections W_Q, W_K, W_V (Eqs. 1, 2), and its map to (Y, Z).

    Y = U W_V^T U^T,      Z = U W_Q W_K^T U^T / sqrt(d)                                       (Section 3.1)

give the same logits for every sequence.  The functions are equal, but the parameters differ, and so do the training
dynamics: d-dimensional embeddings tie the entries of Y and Z to each other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scansnap.systems.yz.layer import YZTransformer, attend, unit
from scansnap.validation.argument_types import Seed
from scansnap.validation.validate import validated


@validated
class RegularTransformer(nn.Module):
    """u_l^T W_V U^T LN(X^T b) with b the softmax of u_{x_T}^T W_Q W_K^T u_{x_t} / sqrt(d).

    >>> import torch
    >>> model = ss.RegularTransformer(34, 16)
    >>> model(torch.zeros(2, 8, dtype=torch.long)).shape
    torch.Size([2, 34])
    """

    def __init__(self, vocab_size: int, width: int, *, dtype: torch.dtype = torch.float32, seed: Seed = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def gaussian(rows: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, width, generator=generator, dtype=dtype) / math.sqrt(width))

        self.vocab_size = vocab_size
        self.width = width
        self.embedding = gaussian(vocab_size)  # U
        self.query_weight = gaussian(width)  # W_Q
        self.key_weight = gaussian(width)  # W_K
        self.value_weight = gaussian(width)  # W_V

    def forward(self, sequences: Tensor) -> Tensor:
        """Logits over next tokens (B, M) for sequences x_1 ... x_T (B, T)."""
        context, query = sequences[:, :-1], sequences[:, -1]
        queries = self.embedding[query] @ self.query_weight  # (B, d)
        keys = self.embedding[context] @ self.key_weight  # (B, T-1, d)
        scores = (keys @ queries[..., None]).squeeze(2) / math.sqrt(self.width)
        one_hot = nn.functional.one_hot(context, self.vocab_size).to(scores.dtype)
        mixed = unit(attend(scores, one_hot)) @ self.embedding  # u~_T, (B, d)
        return mixed @ self.value_weight.T @ self.embedding.T

    def loss(self, sequences: Tensor, next_tokens: Tensor) -> Tensor:
        """-J (Eq. 2): mean cross-entropy of the next tokens (B,)."""
        return nn.functional.cross_entropy(self(sequences), next_tokens)

    @torch.no_grad()
    def to_yz(self) -> YZTransformer:
        """The (Y, Z) transformer with the same logits."""
        u = self.embedding
        twin = YZTransformer(self.vocab_size, dtype=u.dtype)
        twin.decoder.copy_(u @ self.value_weight.T @ u.T)
        twin.attention_logits.copy_(u @ self.query_weight @ self.key_weight.T @ u.T / math.sqrt(self.width))
        return twin
