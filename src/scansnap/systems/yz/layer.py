"""The models written plainly on one-hot tokens, with autograd: (Y, Z), its regular parameterization, several layers.

One layer
---------
Eqs. 1, 2 and 15 as the paper defines them, with M x M matrices.  The model knows nothing of sequence classes.  Training
uses `dynamics`, which must agree with it.

The regular parameterization
----------------------------
Embeddings U and projections W_Q, W_K, W_V (Eqs. 1, 2) map to (Y, Z):

    Y = U W_V^T U^T,      Z = U W_Q W_K^T U^T / sqrt(d)                                       (Section 3.1)

give the same logits for every sequence.  The functions are equal, but the parameters differ, and so do the training
dynamics: d-dimensional embeddings tie the entries of Y and Z to each other.

Several layers
--------------
A sequence is described by the number of times a_l that each of its W distinct tokens l stands before its query m, so
all copies of a token share one feature vector in every layer.  Features live in R^N with a coordinate for each
contextual token and query; at first they are the one-hot tokens.  A layer below the last moves the features of every
token i of the sequence and of its query,

    c_il = softmax_l(x_i . Z x_l + ln a_l),     x_i <- LN(x_i + phi(Y^T LN(sum_l c_il x_l))),

and the last one reads the query's, logits = Y^T LN(sum_l c_ml x_l); a single layer is the basic setting.  phi is tanh
or ReLU.  A contextual token attends to all contextual positions, its own included.

The tokens of a sequence are those of its class: no other row is ever attended to, so none is computed.  In the first
layer x_i = e_i, and its products are reads: x_i . Z x_l = Z_il, LN(sum_l c_il e_l) has the entries c_i / |c_i|_2 at the
sequence's tokens, and Y^T of it sums W rows of Y.  That takes O(W^2 N) operations and no N x N product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scansnap.systems.yz.architecture import Addition, AttentionMap, Layer, Normalization, TokenRows
from scansnap.validation.argument_types import Seed
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


def layered_logits(
    decoders: list[Tensor],
    attentions: list[Tensor],
    log_a: Tensor,
    tokens: Tensor,
    query: Tensor,
    nonlinearity: str = "tanh",
) -> tuple[Tensor, list[Tensor]]:
    """Logits (R, B, C), and the attention of every layer (R, B, W) as the output sees it.

    `attentions` are Z (R, N, N) of each layer, `decoders` Y (R, N, N), the last (R, N, C).  `tokens` (R, B, W) and
    `query` (R, B) are the coordinates of a sequence's tokens and of its query; `log_a` (R, B, W) has -inf where a token
    is absent.  The last layer's attention is the query's; a lower layer's is that of the tokens, weighted by the
    attention of the layer above.
    """
    act = torch.tanh if nonlinearity == "tanh" else torch.relu
    top, width = len(decoders) - 1, tokens.shape[2]
    rows = torch.cat([tokens, query[..., None]], 2)  # (R, B, W + 1)
    run = torch.arange(len(tokens), device=tokens.device)[:, None, None]
    x = torch.nn.functional.one_hot(rows, attentions[0].shape[-1]).to(log_a.dtype)  # (R, B, W + 1, N)
    attended = []
    for j, (decoder, attention) in enumerate(zip(decoders, attentions, strict=True)):
        movers = slice(width if j == top else 0, None)  # the last layer moves the query alone
        context = x[:, :, :width]
        if j == 0:
            scores = attention[run[..., None], rows[:, :, movers, None], tokens[:, :, None]]
        else:
            scores = x[:, :, movers] @ attention[:, None] @ context.mT
        c = torch.softmax(scores + log_a[:, :, None], dim=3)
        read = unit(c) @ decoder[run, tokens] if j == 0 else unit(c @ context) @ decoder[:, None]
        attended.append(c)
        if j < top:
            x = unit(x + act(read))
    seen = [attended[top][:, :, 0]]
    for c in reversed(attended[:top]):
        seen.insert(0, (seen[0][:, :, None] @ c[:, :, :width]).squeeze(2))
    return read.squeeze(2), seen
