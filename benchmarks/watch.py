"""What watching attention costs, and what asking the model for its attention would, paired in one run.

    python benchmarks/watch.py [--repeats 5] [--threads 2]   # 6 layers of width 384
    python benchmarks/watch.py --device cuda [--repeats 20]  # GPT-2 small in bfloat16, compiled
    python benchmarks/watch.py --quantities                  # what each quantity adds to a snapshot

In each repetition, in turn: some steps of training, as many with a snapshot among them, a snapshot alone, and steps
with eager attention that returns its weights (`output_attentions`), which is how a model would show them without one.
The cost of a snapshot is what it adds to the steps; the overhead is that of one at every 50th step.  Times are medians,
by processor time on a CPU and by wall time on a GPU, where the steps before a snapshot may still be computed when it
begins.  The probe is a quarter of a batch.  The model is Hugging Face's GPT-2, from a configuration, or the same by
hand where transformers is not installed.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import time
import timeit
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import scansnap as ss

EVERY = 50
SHAPES = {
    "cpu": {"layers": 6, "width": 384, "heads": 6, "vocabulary": 8192, "length": 256, "batch": 16},
    "small": {"layers": 2, "width": 256, "heads": 4, "vocabulary": 1024, "length": 256, "batch": 16},
    "cuda": {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50257, "length": 1024, "batch": 16},
}


class Block(nn.Module):
    """A layer of GPT-2; `shows` computes attention eagerly and keeps its weights."""

    def __init__(self, width: int, heads: int, shows: bool) -> None:
        super().__init__()
        self.heads, self.shows = heads, shows
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).chunk(3, 2))
        weights = None
        if self.shows:
            logits = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
            later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
            weights = (
                logits.masked_fill(later, torch.finfo(logits.dtype).min).softmax(3, dtype=torch.float32).to(q.dtype)
            )
            mixed = weights @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x)), weights


class GPT(nn.Module):
    """GPT-2 by hand."""

    def __init__(self, shape: dict[str, int], shows: bool) -> None:
        super().__init__()
        width = shape["width"]
        self.wte, self.wpe = nn.Embedding(shape["vocabulary"], width), nn.Embedding(shape["length"], width)
        self.h = nn.ModuleList(Block(width, shape["heads"], shows) for _ in range(shape["layers"]))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, input_ids: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device))
        shown = []
        for block in self.h:
            x, weights = block(x)
            shown.append(weights)
        return self.ln_f(x) @ self.wte.weight.T, shown


def make(shape: dict[str, int], shows: bool, device: str) -> tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor]]:
    """The model, and its logits of token ids."""
    torch.manual_seed(0)
    if find_spec("transformers") is None:
        return GPT(shape, shows).to(device), lambda model, ids: model(input_ids=ids)[0]
    import transformers

    library: Any = transformers
    config = library.GPT2Config(
        vocab_size=shape["vocabulary"],
        n_positions=shape["length"],
        n_embd=shape["width"],
        n_layer=shape["layers"],
        n_head=shape["heads"],
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        attn_implementation="eager" if shows else "sdpa",
    )
    more: dict[str, Any] = {"output_attentions": True} if shows else {}
    return library.GPT2LMHeadModel(config).to(device), lambda model, ids: model(input_ids=ids, **more).logits


class Training:
    """One model in training."""

    def __init__(self, shape: dict[str, int], device: str, *, shows: bool = False) -> None:
        self.plain, self._logits = make(shape, shows, device)
        self.model: Any = torch.compile(self.plain) if device == "cuda" else self.plain
        self.optimizer = torch.optim.AdamW(self.plain.parameters(), 1e-4, fused=True)
        self._shape, self._device = shape, device
        self._generator = torch.Generator().manual_seed(1)

    def batch(self) -> Tensor:
        size = self._shape["batch"], self._shape["length"] + 1
        return torch.randint(0, self._shape["vocabulary"], size, generator=self._generator).to(self._device)

    def step(self) -> None:
        ids = self.batch()
        with torch.autocast(self._device, torch.bfloat16, enabled=self._device == "cuda"):
            logits = self._logits(self.model, ids[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def measure_quantities(training: Training, repeats: int, timed: Callable[[Callable[[], Any], int], float]) -> None:
    """Print what each quantity adds to a snapshot that records the entropy alone, in medians of paired snapshots."""
    training.step()  # so that there are gradients
    probe = {"input_ids": training.batch()[: training._shape["batch"] // 4, :-1]}
    asked = [("entropy",), *(("entropy", name) for name in ss.HEAD_QUANTITIES if name != "entropy"), ("default",)]
    watches = [ss.watch(training.model, probe=probe, record=record, pattern=False, errors="raise") for record in asked]
    times: list[list[float]] = [[] for _ in asked]
    for _ in range(repeats):
        for watch, taken in zip(watches, times, strict=True):
            taken.append(timed(watch.snapshot, 1))
    alone = statistics.median(times[0])
    print(f"entropy alone: {1e3 * alone:.0f} ms")
    for record, taken in zip(asked[1:], times[1:], strict=True):
        added = statistics.median(t - base for t, base in zip(taken, times[0], strict=True))
        print(f"{record[-1]:20s} {added / alone:+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2, help="on a CPU")
    parser.add_argument("--quantities", action="store_true", help="measure what each quantity adds to a snapshot")
    options = parser.parse_args()
    device, shape = options.device, SHAPES[options.device]
    on_gpu = device == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    if not on_gpu:
        torch.set_num_threads(options.threads)

    def timed(action: Callable[[], Any], count: int) -> float:
        if on_gpu:
            torch.cuda.synchronize()
        start = clock()
        for _ in range(count):
            action()
        if on_gpu:
            torch.cuda.synchronize()
        return (clock() - start) / count

    if options.quantities:
        measure_quantities(Training(shape if on_gpu else SHAPES["small"], device), options.repeats, timed)
        return
    fused, eager = Training(shape, device), Training(shape, device, shows=True)
    with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
        probe = {"input_ids": fused.batch()[: shape["batch"] // 4, :-1]}
        watch = ss.watch(fused.model, probe=probe, every=EVERY, rows=options.rows, errors="raise")

    def snapshot() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            watch.snapshot()

    steps = 10 if on_gpu else 2

    snapshots = itertools.count(1)

    def steps_and_snapshot() -> None:
        first = EVERY * next(snapshots) - steps // 2
        for i in range(steps):
            fused.step()
            with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
                watch.step(first + i)

    for warm_up in (fused.step, eager.step, snapshot):
        timed(warm_up, 3 if on_gpu else 1)
    times: dict[str, list[float]] = {"step": [], "added": [], "snapshot": [], "eager": []}
    for _ in range(options.repeats):
        step = timed(fused.step, steps)
        times["step"].append(step)
        times["added"].append(timed(steps_and_snapshot, 1) - steps * step)
        times["snapshot"].append(timed(snapshot, 1))
        times["eager"].append(timed(eager.step, steps))
    overheads = [added / (EVERY * step) for added, step in zip(times["added"], times["step"], strict=True)]
    slower = [eager / step - 1 for eager, step in zip(times["eager"], times["step"], strict=True)]
    empty = ss.watch(nn.TransformerEncoderLayer(8, 2, 8), probe=torch.zeros(4, 1, 8), every=10**9)
    nothing = min(timeit.repeat(empty.step, number=100_000, repeat=5)) / 100_000
    where = torch.cuda.get_device_name() if on_gpu else f"{platform.machine()}, {torch.get_num_threads()} threads"
    library = "by hand" if find_spec("transformers") is None else "Hugging Face"
    precision = "bfloat16, compiled" if on_gpu else "float32"
    print(
        f"GPT-2 ({library}), {shape['layers']} layers of width {shape['width']}, batches of {shape['batch']} x "
        f"{shape['length']} tokens, {precision}; {where}; torch {torch.__version__}"
    )
    print(
        f"probe {shape['batch'] // 4} x {shape['length']} tokens, {options.rows} rows of each head; "
        f"{options.repeats} repetitions"
    )
    print(f"step                           {1e3 * statistics.median(times['step']):9.2f} ms")
    print(
        f"snapshot                       {1e3 * statistics.median(times['added']):9.2f} ms   "
        f"alone {1e3 * statistics.median(times['snapshot']):.2f} ms"
    )
    print(
        f"overhead at every {EVERY} steps      {statistics.median(overheads):9.2%}   "
        f"({min(overheads):.2%} to {max(overheads):.2%}; at most 1% wanted)"
    )
    print(
        f"eager, returning attention     {1e3 * statistics.median(times['eager']):9.2f} ms   "
        f"{statistics.median(slower):+.0%} in every step ({min(slower):+.0%} to {max(slower):+.0%})"
    )
    print(f"watch.step() without one       {1e9 * nothing:9.0f} ns")


if __name__ == "__main__":
    main()
