"""Products over the rows of each class against plain products: on a GPU, or by Triton's interpreter on a CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics.gradients import Batch, LayoutTensors, gradients
from scansnap.dynamics.products import DenseProducts
from scansnap.systems.yz.architecture import Layer
from scansnap.systems.yz.compact import CompactLayout

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


@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize("modified", [False, True], ids=["true", "modified"])
def test_a_step_is_the_same_with_either_kind(modified: bool, residual: bool) -> None:
    """The gradient of a batch in any order, by plain products, and of the same batch in order, by these."""
    classes = ss.syn_medium(num_query=2)
    layout = CompactLayout.of(classes, np.arange(classes.vocab_size), Layer(residual=residual))
    plain = LayoutTensors.of(layout, dtype=torch.float32, device=DEVICE)
    ours = replace(plain, products=SupportProducts.of(layout, DEVICE))
    random = np.random.default_rng(0)
    class_index = torch.as_tensor(random.integers(0, 4, (2, 9)), device=DEVICE)
    counts = torch.as_tensor(random.integers(0, 5, (2, 9, layout.num_rows)), device=DEVICE) * (
        plain.probs[class_index] > 0
    )
    batch = Batch(class_index, counts.float(), torch.full((2, 9), 1 / 9, device=DEVICE))
    y, z = (
        torch.as_tensor(random.normal(size=shape), dtype=torch.float32, device=DEVICE)
        for shape in ((2, layout.num_decoder_rows, len(layout.multiplicity)), (2, layout.num_queries, layout.num_rows))
    )
    expected = gradients(plain, y, z, batch, modified=modified)
    ordered = batch.in_class_order()
    assert bool((ordered.class_index.diff(dim=1) >= 0).all())
    result = gradients(ours, y, z, ordered, modified=modified)
    for name in ("decoder", "attention_logits", "loss", "accuracy"):
        assert torch.allclose(getattr(result, name), getattr(expected, name), rtol=1e-4, atol=1e-5), name
