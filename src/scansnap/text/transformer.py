"""A causal transformer for text in the regular parameterization: embeddings, W_Q, W_K, W_V and a linear decoder.

With the defaults it is the published text model: a post-norm encoder layer with a causal mask, one head, a feed-forward
part as wide as the model, sinusoidal positions, and separate embedding and decoder.  Fused kernels compute attention
during training; `attention` computes the weights that they use, to rounding, from the same queries and keys.

Position codes are added to the input (sinusoidal), or to the attention logits by distance (alibi, t5).  A bias on
attention logits by relative position acts like a prior on contextual tokens (Section 7).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from scansnap.runtime.errors import InputError
from scansnap.text.options import TextShape

ONE_BLOCK = 64
"""Keys that a GPU's fused kernels take at once; with more keys they sum gradients in no fixed order."""

BUCKETS, FARTHEST_DISTANCE = 32, 128
"""T5's buckets of distances: half contain one distance each, the others grow up to `FARTHEST_DISTANCE`."""


def drop(x: Tensor, share: float) -> Tensor:
    """`x` with a random `share` of its entries set to zero and the others divided by 1 - share.

    On a CPU, PyTorch's own dropout draws Bernoulli numbers one by one; uniform numbers take less than half as long.
    """
    if not share:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, share)
    mask = torch.rand_like(x, dtype=torch.float32).ge_(share).div_(1 - share)  # bf16 numbers would be too coarse
    return x * mask.to(x.dtype)


def sinusoidal(window: int, width: int) -> Tensor:
    """Sines in the even and cosines in the odd columns (window, width), at wavelengths from 2 pi to 10000 * 2 pi."""
    position = torch.arange(window)[:, None]
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(window, width)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)[:, : width // 2]
    return table


def distances(window: int) -> Tensor:
    """The distance from query i back to key j (window, window); 0 for keys after the query, which are masked."""
    position = torch.arange(window)
    return (position[:, None] - position).clamp(min=0)


def alibi(heads: int, window: int) -> Tensor:
    """-slope * distance (heads, window, window), with slopes 2^(-8/heads), 2^(-16/heads), ..."""
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    return -slopes[:, None, None] * distances(window)


def buckets(window: int) -> Tensor:
    """The T5 bucket of each distance (window, window)."""
    distance = distances(window)
    near = BUCKETS // 2
    ratio = torch.log(distance.clamp(min=1) / near) / math.log(FARTHEST_DISTANCE / near)
    return torch.where(distance < near, distance, (near + (ratio * (BUCKETS - near)).long()).clamp(max=BUCKETS - 1))


class RelativeBias(nn.Module):
    """T5's learned bias: a number for each head and bucket of distances, initially zero."""

    in_bucket: Tensor

    def __init__(self, heads: int, window: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(BUCKETS, heads))
        one_hot = functional.one_hot(buckets(window), BUCKETS).float()
        self.register_buffer("in_bucket", one_hot, persistent=False)

    def forward(self) -> Tensor:
        """The bias (heads, window, window); a product, so that its gradient is summed in a fixed order."""
        with torch.autocast(self.table.device.type, enabled=False):
            return (self.in_bucket @ self.table).permute(2, 0, 1)


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each with a residual connection and a LayerNorm after (post) or before it (pre)."""

    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        width, inner = shape.width, shape.feed_forward
        self.heads, self.dropout, self.is_pre_norm = shape.heads, shape.dropout, shape.norm == "pre"
        self.query = nn.Linear(width, width)  # W_Q
        self.key = nn.Linear(width, width)  # W_K
        self.value = nn.Linear(width, width)  # W_V
        self.output = nn.Linear(width, width)
        self.inner = nn.Linear(width, inner)
        self.outer = nn.Linear(inner, width)
        self.norm_attention = nn.LayerNorm(width)
        self.norm_feed_forward = nn.LayerNorm(width)
        for part in (self.query, self.key, self.value):
            nn.init.uniform_(part.weight, -(bound := math.sqrt(1.5 / width)), bound)  # one Xavier matrix (3d, d)
        for part in (self.query, self.key, self.value, self.output):
            nn.init.zeros_(part.bias)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """(B, T, d) -> (B, T, d); `bias` (H, T, T) is added to the attention logits."""
        if self.is_pre_norm:
            x = x + self._drop(self._attend(self.norm_attention(x), bias))
            return x + self._drop(self._feed_forward(self.norm_feed_forward(x)))
        x = self.norm_attention(x + self._drop(self._attend(x, bias)))
        return self.norm_feed_forward(x + self._drop(self._feed_forward(x)))

    def attention(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The weights (B, H, T, T) of queries, on the second-last axis, on keys."""
        query, key, bias = self.queries_and_keys(x, bias)
        return _weights(query, key, bias)

    def queries_and_keys(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries and keys (B, H, T, d/H), and what is added to their products."""
        if self.is_pre_norm:
            x = self.norm_attention(x)
        query, key = self._project(x, self.query, self.key)
        return query, key, bias

    def _attend(self, x: Tensor, bias: Tensor | None) -> Tensor:
        query, key, value = self._project(x, self.query, self.key, self.value)
        if not _fused(x):
            return self._merge_heads(self._drop(_weights(query, key, bias)).to(value.dtype) @ value)
        if bias is not None:
            bias = bias.to(x.dtype).masked_fill(_later(x.shape[1], x.device), -math.inf)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, bias, dropout, is_causal=bias is None)
        return self._merge_heads(mixed)

    def _merge_heads(self, mixed: Tensor) -> Tensor:
        """The outputs of the heads (B, H, T, d/H), combined (B, T, d)."""
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _project(self, x: Tensor, *parts: nn.Linear) -> list[Tensor]:
        """The projection by each part (B, H, T, d/H), all in one product."""
        weight, bias = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
        projections = functional.linear(x, weight, bias).unflatten(2, (len(parts), self.heads, -1))
        return [projection.transpose(1, 2) for projection in projections.unbind(2)]

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.outer(self._drop(functional.relu(self.inner(x))))

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout if self.training else 0.0)


def _fused(x: Tensor) -> bool:
    """Whether fused kernels give the same numbers every time."""
    return x.device.type != "cuda" or x.shape[1] <= ONE_BLOCK


def _weights(query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
    """Attention (B, H, T, T) of queries and keys (B, H, T, d/H)."""
    logits = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    if bias is not None:
        logits = logits + bias
    return logits.masked_fill(_later(query.shape[2], query.device), -math.inf).softmax(3)


def _later(length: int, device: torch.device) -> Tensor:
    """Which keys (T, T) come after their query and are hidden from it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


class TextTransformer(nn.Module):
    """Turns token ids (B, T) into hidden states (B, T, d); next tokens have the logits `hidden @ decoder.T + bias`."""

    table: Tensor

    def __init__(self, shape: TextShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.empty(shape.vocab_size, shape.width).uniform_(-0.1, 0.1))
        self.blocks = nn.ModuleList(TransformerLayer(shape) for _ in range(shape.layers))
        self.final_norm = nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()
        self.decoder = nn.Parameter(torch.empty(shape.vocab_size, shape.width).uniform_(-0.1, 0.1))
        self.decoder_bias = nn.Parameter(torch.zeros(shape.vocab_size))
        self.relative = RelativeBias(shape.heads, shape.window) if shape.positions == "t5" else None
        table = {
            "sinusoidal": lambda: sinusoidal(shape.window, shape.width),
            "alibi": lambda: alibi(shape.heads, shape.window),
        }.get(shape.positions, lambda: torch.zeros(0))()
        self.register_buffer("table", table, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states (B, T, d)."""
        return self.hidden(functional.embedding(ids, self.embedding))

    def hidden(self, embedded: Tensor) -> Tensor:
        """Hidden states (B, T, d) from embeddings (B, T, d)."""
        x, bias = self._encode_positions(embedded)
        for block in self.layers:
            x = block(x, bias)
        return self.final_norm(x)

    @torch.no_grad()
    def attention(self, ids: Tensor) -> list[Tensor]:
        """Each layer's attention weights (B, H, T, T), without dropout."""
        was_training = self.training
        self.eval()
        x, bias = self._encode_positions(functional.embedding(ids, self.embedding))
        weights = []
        for block in self.layers:
            weights.append(block.attention(x, bias))
            x = block(x, bias)
        self.train(was_training)
        return weights

    @torch.no_grad()
    def logits_between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Attention logits (H, Q, K) of the first layer between tokens; with positions, their mean over all pairs.

        The counterpart of Z = U W_Q W_K^T U^T / sqrt(d) (Section 3.1).  Codes that are added to embeddings enter
        linearly on either side, so that their mean gives the mean; biases by distance add the same to all tokens.
        """
        block = self.layers[0]
        if block.is_pre_norm and self.shape.positions == "sinusoidal":
            raise InputError(
                "positions is 'sinusoidal' and norm is 'pre', so logits depend on where tokens are: train with "
                "positions='none', or norm='post'."
            )
        q, k = (self.embedding[ids][None] * math.sqrt(self.shape.width) for ids in (queries, keys))
        if self.shape.positions == "sinusoidal":
            q, k = q + self.table.mean(0), k + self.table.mean(0)
        if block.is_pre_norm:
            q, k = block.norm_attention(q), block.norm_attention(k)
        (q,), (k,) = block._project(q, block.query), block._project(k, block.key)
        return (q @ k.transpose(2, 3))[0] / math.sqrt(q.shape[-1])

    @property
    def layers(self) -> list[TransformerLayer]:
        """The layers, first to last."""
        return [block for block in self.blocks if isinstance(block, TransformerLayer)]

    def attention_parameters(self) -> list[nn.Parameter]:
        """The parameters of the attention logits (W_Q, W_K and any learned position bias), trained at eta_Z."""
        parts: list[nn.Module] = [part for block in self.layers for part in (block.query, block.key)]
        if self.relative is not None:
            parts.append(self.relative)
        return [parameter for part in parts for parameter in part.parameters()]

    def _encode_positions(self, embedded: Tensor) -> tuple[Tensor, Tensor | None]:
        length = embedded.shape[1]
        x = embedded * math.sqrt(self.shape.width)
        bias = None
        if self.shape.positions == "sinusoidal":
            x = x + self.table[:length]
        elif self.shape.positions == "alibi":
            bias = self.table[:, :length, :length]
        elif self.relative is not None:
            bias = self.relative()[:, :length, :length]
        return drop(x, self.shape.dropout if self.training else 0.0), bias
