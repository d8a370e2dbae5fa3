"""Products over the rows of each class against plain products: on a GPU, or by Triton's interpreter on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics.products import DenseProducts
from scansnap.model.architecture import Layer
from scansnap.model.compact import CompactLayout

pytest.importorskip("triton", reason="Triton is for Linux only")

from scansnap.dynamics.support_products import SupportProducts

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize("heads", [1, 2])
def test_they_equal_products_over_all_rows(heads: int, residual: bool) -> None:
    """Directions are zero outside the rows of their class; so is the part of g that matters."""
    classes = ss.syn_medium(num_query=2)
    layout = CompactLayout.of(classes, np.arange(classes.vocab_size), Layer(heads=heads, residual=residual))
    ours = SupportProducts.of(layout, DEVICE)
    random = torch.Generator(DEVICE).manual_seed(0)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, device=DEVICE)

    runs, batch, columns, all_rows = 2, 21, len(layout.multiplicity), heads * layout.num_decoder_rows
    class_index = torch.tensor([[0] * 18 + [2, 2, 3], list(range(4)) * 5 + [3]], device=DEVICE).sort(1).values
    read = torch.zeros(classes.num_classes, all_rows, device=DEVICE)
    for n in range(classes.num_classes):
        read[n, ours.rows[n][ours.rows[n] >= 0]] = 1.0
    mask = read[class_index]  # (R, B, H D)
    assert int(read.sum()) == heads * (20 + residual) * classes.num_classes
    v, x, y = numbers(runs, batch, all_rows) * mask, numbers(runs, batch, columns), numbers(runs, all_rows, columns)
    plain = DenseProducts()
    assert torch.allclose(ours.read(v, y, class_index), plain.read(v, y, class_index), atol=1e-4)
    assert torch.allclose(ours.back(x, y, class_index), plain.back(x, y, class_index) * mask, atol=1e-4)
    assert torch.allclose(ours.outer(v, x, class_index), plain.outer(v, x, class_index), atol=1e-4)
