"""The 1-layer transformer in (Y, Z), written plainly: Eqs. 1, 2 and 15 on one-hot sequences, with autograd.

This is the model as the paper defines it, with M x M matrices; it knows nothing of sequence classes.  Training
uses `dynamics`, which must agree with it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scansnap.systems.yz.architecture import Addition, Layer
from scansnap.systems.yz.attention import AttentionMap
from scansnap.systems.yz.normalization import Normalization
from scansnap.systems.yz.rows import TokenRows
from scansnap.validation.options import from_names
from scansnap.validation.validate import validated


def attend(scores: Tensor, embeddings: Tensor) -> Tensor:
    """X^T b with b the softmax of the scores over contextual positions (B, T-1); embeddings (B, T-1, M)."""
    return (torch.softmax(scores, dim=1)[:, None] @ embeddings).squeeze(1)


def unit(x: Tensor) -> Tensor:
    """LN(x) = x / |x|_2 along the last axis."""
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


@validated
class YZTransformer(nn.Module):
    """Logits = Y^T LN(X^T b), b = softmax over contextual positions of Z[x_T, x_t], which exclude the query itself.

    The layer's options are those of `Layer`: another LN, another map from logits to attention, LN(LN(X^T b) + x_T)
    instead of LN(X^T b), and several parallel heads whose logits add; Y and Z of several heads are (H, M, M).

    >>> import torch
    >>> model = ss.YZTransformer(34)
    >>> model(torch.zeros(2, 8, dtype=torch.long)).shape
    torch.Size([2, 34])
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        **layer: str | bool | int | Normalization | AttentionMap | Addition,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.layer = from_names(Layer, layer)
        self._rows = TokenRows(vocab_size)
        heads = self.layer.heads
        shape = (vocab_size, vocab_size) if heads == 1 else (heads, vocab_size, vocab_size)
        self.decoder = nn.Parameter(torch.zeros(shape, dtype=dtype))  # Y
        self.attention_logits = nn.Parameter(torch.zeros(shape, dtype=dtype))  # Z

    def forward(self, sequences: Tensor) -> Tensor:
        """Logits over next tokens (B, M) for sequences x_1 ... x_T (B, T)."""
        if self.layer.heads == 1:
            return self._head(self.decoder, self.attention_logits, sequences)
        heads = zip(self.decoder, self.attention_logits, strict=True)
        return torch.stack([self._head(y, z, sequences) for y, z in heads]).sum(0)

    def _head(self, decoder: Tensor, attention_logits: Tensor, sequences: Tensor) -> Tensor:
        context, query = sequences[:, :-1], sequences[:, -1]
        one_hot = nn.functional.one_hot(context, self.vocab_size).to(decoder.dtype)  # (B, T-1, M)
        normalize = self.layer.normalizer.forward
        direction = normalize(self._attention(attention_logits[query], context, one_hot), self._rows)
        if self.layer.addition is not None:
            own = nn.functional.one_hot(query, self.vocab_size).to(decoder.dtype)
            direction = normalize(self.layer.addition.forward(direction, own), self._rows)
        return direction @ decoder

    def _attention(self, z: Tensor, context: Tensor, one_hot: Tensor) -> Tensor:
        """Attention over tokens (B, M) from the logits of each sequence's query (B, M)."""
        if self.layer.attention_map == "softmax":
            return attend(z.gather(1, context), one_hot)  # position by position, as in Eq. 1
        return self.layer.map.forward(z, one_hot.sum(1).log())

    def loss(self, sequences: Tensor, next_tokens: Tensor) -> Tensor:
        """-J (Eq. 15): mean cross-entropy of the next tokens (B,)."""
        return nn.functional.cross_entropy(self(sequences), next_tokens)
