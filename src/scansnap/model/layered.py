"""Several (Y, Z) layers with a nonlinearity between them, on token counts.

A sequence is described by the number of times a_l that each token l stands before its query m, so all copies of a token
share one feature vector in every layer.  Features live in R^N with a coordinate for each contextual token and query;
at first they are the one-hot tokens.  A layer below the last moves the features of every token i and of the query,

    c_il = softmax_l(x_i . Z x_l + ln a_l),     x_i <- LN(x_i + phi(Y^T LN(sum_l c_il x_l))),

and the last one reads the query's, logits = Y^T LN(sum_l c_ml x_l); a single layer is the basic setting.  phi is tanh
or ReLU.  A contextual token attends to all contextual positions, its own included.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scansnap.model.layer import unit


def layered_logits(
    decoders: list[Tensor], attentions: list[Tensor], log_a: Tensor, query: Tensor, nonlinearity: str = "tanh"
) -> tuple[Tensor, list[Tensor]]:
    """Logits (R, B, C), and the attention of every layer (R, B, S) as the output sees it.

    `attentions` are Z (R, N, N) of each layer, `decoders` Y (R, N, N), the last (R, N, C); `log_a` (R, B, S) has -inf
    where a token is absent, and `query` (R, B) the coordinate of each query.  The first S coordinates are those of the
    contextual tokens.  The last layer's attention is the query's; a lower layer's is that of the tokens, weighted by
    the attention of the layer above.
    """
    runs, batch, context = log_a.shape
    size = attentions[0].shape[-1]
    x = torch.eye(size, dtype=log_a.dtype, device=log_a.device).expand(runs, batch, size, size)  # (R, B, N, N)
    act = torch.tanh if nonlinearity == "tanh" else torch.relu
    maps = []
    for decoder, attention in zip(decoders[:-1], attentions[:-1], strict=True):
        scores = x @ attention[:, None] @ x[:, :, :context].mT + log_a[:, :, None]  # (R, B, N, S)
        c = torch.softmax(scores, dim=3)
        maps.append(c[:, :, :context])
        x = unit(x + act(unit(c @ x[:, :, :context]) @ decoder[:, None]))
    rows = query[..., None, None].expand(-1, -1, 1, size)
    own = x.gather(2, rows)  # (R, B, 1, N)
    last = torch.softmax((own @ attentions[-1][:, None] @ x[:, :, :context].mT).squeeze(2) + log_a, dim=2)
    direction = unit((last[:, :, None] @ x[:, :, :context]).squeeze(2))
    seen = [last]
    for c in reversed(maps):
        seen.insert(0, (seen[0][:, :, None] @ c).squeeze(2))
    return direction @ decoders[-1], seen
