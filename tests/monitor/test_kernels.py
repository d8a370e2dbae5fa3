"""Capture under the kernels that training uses, with the versions that are installed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import scansnap as ss

HEADS, WIDTH, LENGTH, TOKENS = 4, 64, 256, 97


@torch.library.custom_op("scansnap_tests::flash", mutates_args=())
def flash(q: Tensor, k: Tensor, v: Tensor, documents: Tensor) -> Tensor:
    """Causal attention (B, T, H, d) within documents, as a kernel that torch's functions see nothing of."""
    t = torch.arange(q.shape[1], device=q.device)
    shown = (documents[:, :, None] == documents[:, None]) & (t[:, None] >= t)
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(*heads_first, attn_mask=shown[:, None]).transpose(1, 2).contiguous()


@flash.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, documents: Tensor) -> Tensor:
    return torch.empty_like(q)


class Attention(nn.Module):
    """Causal self-attention within documents, by one of the kernels."""

    def __init__(self, kernel: str) -> None:
        super().__init__()
        self.qkv, self.out, self.kernel = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), kernel

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).unflatten(2, (3, HEADS, -1)).unbind(2)  # each (B, T, H, d)

    def forward(self, x: Tensor, documents: Tensor) -> Tensor:
        q, k, v = self.project(x)
        if self.kernel == "custom op":
            mixed = flash(q, k, v, documents)
        else:
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            if self.kernel == "flex":
                mixed = flex_attention(q, k, v, block_mask=block_mask(documents))
            else:
                mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = mixed.transpose(1, 2)
        return x + self.out(mixed.flatten(2))


def block_mask(documents: Tensor) -> Any:
    def shown(b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return (documents[b, t] == documents[b, s]) & (t >= s)

    windows, length = documents.shape
    return create_block_mask(shown, windows, None, length, length, device=str(documents.device))


class Model(nn.Module):
    def __init__(self, kernel: str) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.layers = nn.ModuleList(Attention(kernel) for _ in range(2))

    def forward(self, input_ids: Tensor, document_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, document_ids)
        return torch.as_tensor(self.head(x))


def make(kernel: str, device: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    model = Model(kernel)
    for layer in model.layers:
        layer.qkv.weight.data.mul_(4.0)  # type: ignore[union-attr, operator]
    return model.to(device, dtype)


def probe(device: str, packed: bool = True, windows: int = 4, length: int = LENGTH) -> dict[str, Tensor]:
    ids = torch.randint(TOKENS, (windows, length), generator=torch.Generator().manual_seed(1)).to(device)
    documents = torch.arange(length, device=device) // (60 if packed else length)
    return {"input_ids": ids, "document_ids": documents.expand(windows, -1).contiguous()}


def exact(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Attention (H, T, T) of the first layer in the first window, in float64 from its definition."""
    with torch.no_grad():
        q, k, _ = model.layers[0].project(model.embedding(inputs["input_ids"][:1]))
    logits = torch.einsum("thd,shd->hts", q[0].double(), k[0].double()) * q.shape[-1] ** -0.5
    documents, t = inputs["document_ids"][0], torch.arange(q.shape[1], device=q.device)
    shown = (documents[:, None] == documents) & (t[:, None] >= t)
    return logits.masked_fill(~shown, -math.inf).softmax(-1).cpu()


def announce(watch: ss.Watch, model: Any) -> None:
    """Tell the watch what a custom op attends with, and which keys are seen."""

    def queries_and_keys(module: Attention, x: Tensor, documents: Tensor) -> tuple[Tensor, ...]:
        q, k, _ = (t.transpose(1, 2) for t in module.project(x))
        t = torch.arange(x.shape[1], device=x.device)
        return q, k, ((documents[:, :, None] == documents[:, None]) & (t[:, None] >= t))[:, None]

    watch.attention(*model.layers, queries_and_keys=queries_and_keys)


@pytest.mark.filterwarnings("ignore:no attention was captured")  # it is announced later
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("device", "kernel"),
    [
        ("cpu", "custom op"),
        *(pytest.param("cuda", kernel, marks=pytest.mark.gpu) for kernel in ("sdpa", "flex", "custom op")),
    ],
)
def test_weights_are_exact(device: str, kernel: str, dtype: torch.dtype) -> None:
    """Under each kernel, with packed documents; also at the third snapshot, which on a GPU is a replay.

    On a CPU `test_capture.py` tests the other kernels.
    """
    model, inputs = make(kernel, device, dtype), probe(device, packed=kernel != "sdpa")
    watch = ss.watch(model, probe=inputs, every=1, rows=None, errors="raise")
    if kernel == "custom op":
        with pytest.raises(
            ss.InputError, match=r"0 of 2 attention modules captured; not captured: layers\.0, layers\.1"
        ):
            watch.step()
        announce(watch, model)
    watch.step()
    watch.step()
    weights = exact(model, inputs)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    for snapshot in range(3):
        found = watch.dataset["pattern"].values[snapshot, 0]
        np.testing.assert_allclose(found, weights[:, : found.shape[1], : found.shape[2]], atol=tolerance)
    entropy = torch.special.entr(weights).sum(-1)
    is_counted = (weights > 0).sum(-1)[0] > 1
    if dtype == torch.float32:
        first_window = ss.watch(
            model, probe={k: v[:1] for k, v in inputs.items()}, rows=None, record=("entropy",), errors="raise"
        )
        if kernel == "custom op":
            announce(first_window, model)
        np.testing.assert_allclose(
            first_window.dataset["entropy"].values[0, 0], entropy[:, is_counted].mean(1), rtol=1e-3
        )


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["sdpa", "flex"])
def test_inductor(kernel: str) -> None:
    """A compiled model trains the same with a watch, is not compiled again, and has the numbers of the plain one."""

    def train(model: Any, each: Callable[[], None] = lambda: None) -> list[Tensor]:
        torch.manual_seed(5)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        inputs = probe("cuda", packed=kernel != "sdpa")
        for _ in range(4):
            logits = model(**inputs)
            functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs["input_ids"][:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            each()
        return [parameter.detach().clone() for parameter in model.parameters()]

    torch._dynamo.reset()
    alone = train(torch.compile(make(kernel, "cuda")))
    again = train(torch.compile(make(kernel, "cuda")))
    torch._dynamo.reset()
    model = make(kernel, "cuda")
    compiled = torch.compile(model)
    watch = ss.watch(compiled, probe=probe("cuda", packed=kernel != "sdpa"), every=1, rows=None, errors="raise")
    watched = train(compiled, watch.step)
    if all(torch.equal(a, b) for a, b in zip(alone, again, strict=True)):  # the kernel itself may vary
        assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    fresh = ss.watch(model, probe=probe("cuda", packed=kernel != "sdpa"), rows=None, errors="raise").dataset
    np.testing.assert_allclose(watch.dataset["entropy"].values[-1], fresh["entropy"].values[0], rtol=1e-3)


@pytest.mark.gpu
def test_a_context_of_32k_tokens() -> None:
    """A snapshot of 32,768 tokens takes at most 2 GiB, though the weights of a head would take 4."""
    model = make("sdpa", "cuda", torch.bfloat16)
    watch = ss.watch(model, probe=probe("cuda", packed=False, windows=1, length=1 << 15), every=1, errors="raise")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    watch.step()
    entropy = watch.dataset["entropy"].values
    peak = torch.cuda.max_memory_allocated() - before
    assert np.isfinite(entropy).all()
    assert peak < 2 << 30, f"{peak / 2**30:.2f} GiB"
