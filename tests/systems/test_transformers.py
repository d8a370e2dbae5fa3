"""The plain models: Eq. 1 by hand, and the map from the regular parameterization to (Y, Z)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import scansnap as ss

pytestmark = pytest.mark.rounding


def test_forward_by_hand() -> None:
    """Two contextual tokens 0, 1, 1 and query 2: b, the l2 norm and the logits written out."""
    model = ss.YZTransformer(3, dtype=torch.float64)
    with torch.no_grad():
        model.attention_logits[2, 0] = np.log(4.0)
        model.decoder[0, 1] = 5.0
        model.decoder[1, 2] = 7.0
    logits = model(torch.tensor([[0, 1, 1, 2]]))[0]
    c = np.array([4 / 6, 2 / 6])
    f = c / np.linalg.norm(c)
    assert np.allclose(logits.detach().numpy(), [0, 5 * f[0], 7 * f[1]], rtol=1e-15)


def test_the_query_is_not_a_key() -> None:
    """Z[x_T, x_T] cannot matter unless the query's token also occurs before it."""
    model = ss.YZTransformer(4)
    with torch.no_grad():
        model.decoder.normal_(generator=torch.Generator().manual_seed(0))
    sequences = torch.tensor([[0, 1, 2], [1, 1, 3]])
    before = model(sequences)
    with torch.no_grad():
        model.attention_logits[2, 2] = model.attention_logits[3, 3] = 50.0
    assert torch.equal(before, model(sequences))


def test_regular_parameterization_is_the_same_function() -> None:
    classes = ss.syn_medium(num_query=3)
    sequences, owner = ss.sample_sequences(classes, num=50, seq_len=20, seed=1)
    regular = ss.RegularTransformer(classes.vocab_size, 16, dtype=torch.float64, seed=3)
    batch, labels = torch.from_numpy(sequences), torch.from_numpy(classes.next_token[owner])
    twin = regular.to_yz()
    assert torch.allclose(regular(batch), twin(batch), rtol=1e-12, atol=1e-13)
    assert torch.allclose(regular.loss(batch, labels), twin.loss(batch, labels), rtol=1e-13)
    # Y has the rank of the embeddings, and so cannot be any matrix.
    assert torch.linalg.matrix_rank(twin.decoder) == 16
