"""Layers that are measured together have the numbers that each has alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scansnap as ss
from scansnap.monitor.attention import MAX_WEIGHTS
from scansnap.monitor.reductions import MAX_WAITING, Reductions
from scansnap.monitor.watch import Watch


class Layers(nn.Module):
    """Self-attention of different numbers of heads in turn, then a decoder's."""

    def __init__(self, heads: tuple[int, ...]) -> None:
        super().__init__()
        self.embed = nn.Embedding(13, 24)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(24, n, 24, batch_first=True) for n in heads)
        self.decoder = nn.TransformerDecoderLayer(24, 2, 24, batch_first=True)

    def forward(self, ids: Tensor, key_padding_mask: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=key_padding_mask)
        return torch.as_tensor(self.decoder(x[:, :5], x))


def _followed(model: nn.Module, at_once: int, together: int, patch: pytest.MonkeyPatch) -> tuple[Watch, int]:
    """A watch of four looks at a model that changes, and how often rows were measured."""
    passes = 0
    finish = Reductions.finish

    def counted(sums: Reductions) -> None:
        nonlocal passes
        passes += bool(sums._waiting)
        finish(sums)

    torch.manual_seed(2)
    probe = {"ids": torch.randint(0, 13, (6, 9)), "key_padding_mask": torch.arange(9) >= torch.arange(4, 10)[:, None]}
    with patch.context() as context:
        context.setitem(MAX_WAITING, "cpu", together)
        context.setitem(MAX_WEIGHTS, "cpu", at_once)
        context.setattr(Reductions, "finish", counted)
        watch = ss.watch(model, probe=probe, every=1, rows=24, errors="raise")
        for _ in range(3):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 0.1 * torch.randn_like(parameter)
            watch.step()
    return watch, passes


@pytest.mark.parametrize("heads", [(2, 2, 2), (2, 4, 4)])
@pytest.mark.parametrize("at_once", [1 << 20, 200])
def test_layers_measured_together(heads: tuple[int, ...], at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets, counts = [], []
    for together in (0, 1 << 20):
        torch.manual_seed(1)
        watch, count = _followed(Layers(heads), at_once, together, monkeypatch)
        datasets.append(watch.dataset)
        counts.append(count)
    alone, with_others = datasets
    for name, values in alone.data_vars.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(with_others[name], values, rtol=1e-6, atol=1e-7, err_msg=str(name))
    assert float(alone.moved.isel(step=-1).min()) > 1e-4
    if at_once > 200 and len(set(heads)) < len(heads):
        assert counts[1] < counts[0]
