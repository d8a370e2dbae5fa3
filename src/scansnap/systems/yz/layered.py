"""Several (Y, Z) layers with a nonlinearity between them, on token counts.

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

import torch
from torch import Tensor

from scansnap.systems.yz.layer import unit


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
