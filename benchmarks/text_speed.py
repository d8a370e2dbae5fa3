"""Training on text against a plain PyTorch loop, paired in one run.

    python benchmarks/text_speed.py PATH [--device cuda]

The plain loop is what most people would write: a post-norm `nn.TransformerEncoder` layer whose attention returns its
weights, a linear decoder, `nn.CrossEntropyLoss` over the whole vocabulary, `clip_grad_norm_` and `torch.optim.SGD`.
Both have the published shape (d = 200, windows of 35, batch 20) and start from the same parameters.  Without dropout
their losses must agree to 1e-5 over the first steps; times are medians over alternating blocks of steps.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from scansnap.text.corpus import Corpus, read_corpus
from scansnap.text.measures import AttentionMeasurement
from scansnap.text.options import TextOptions, TextShape, default_records
from scansnap.text.processes import Processes
from scansnap.text.transformer import TextTransformer, sinusoidal
from scansnap.text.updates import Batch, TransformerUpdates
from scansnap.text.windows import Columns, consecutive, spread
from scansnap.validation.options import from_names

BATCH, LR, CLIP = TextOptions.batch_size, TextOptions.lr_y, TextOptions.clip
COMPARED = 5
"""Steps over which losses are compared."""

Step = Callable[[int, Batch, Batch], Tensor]


class Plain(nn.Module):
    """The published model in PyTorch's own parts; positions before batch, the default of its layers."""

    def __init__(self, model: TextTransformer) -> None:
        super().__init__()
        shape = model.shape
        layer = nn.TransformerEncoderLayer(shape.width, shape.heads, shape.feed_forward, shape.dropout)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        # An encoder layer discards its weights; a plain recorder would ask for them.
        attention: Any = self.encoder.layers[0].self_attn
        attend = attention.forward
        attention.forward = lambda *a, **k: attend(*a, **{**k, "need_weights": True})
        self.embedding = nn.Embedding(shape.vocab_size, shape.width)
        self.decoder = nn.Linear(shape.width, shape.vocab_size)
        self.drop = nn.Dropout(shape.dropout)
        self.width = shape.width
        self.register_buffer("table", sinusoidal(shape.window, shape.width)[:, None])
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(shape.window))
        block: Any = model.blocks[0]
        encoder_layer: Any = self.encoder.layers[0]
        with torch.no_grad():
            self.embedding.weight.copy_(model.embedding)
            self.decoder.weight.copy_(model.decoder)
            self.decoder.bias.copy_(model.decoder_bias)
            attention.in_proj_weight.copy_(torch.cat([block.query.weight, block.key.weight, block.value.weight]))
            attention.in_proj_bias.copy_(torch.cat([block.query.bias, block.key.bias, block.value.bias]))
            for part, original in (
                (attention.out_proj, block.output),
                (encoder_layer.linear1, block.inner),
                (encoder_layer.linear2, block.outer),
                (encoder_layer.norm1, block.norm_attention),
                (encoder_layer.norm2, block.norm_feed_forward),
            ):
                part.weight.copy_(original.weight)
                part.bias.copy_(original.bias)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (T, B, V) of ids (T, B)."""
        x = self.drop(self.embedding(ids) * math.sqrt(self.width) + self.table)
        return self.decoder(self.encoder(x, mask=self.mask))


def plain_step(model: Plain) -> Step:
    """An update of the plain loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    criterion = nn.CrossEntropyLoss()
    device = model.decoder.weight.device

    def step(_: int, inputs: Batch, targets: Batch) -> Tensor:
        ids, next_ids = (torch.from_numpy(part).T.to(device) for part in (inputs, targets))
        loss = criterion(model(ids).flatten(0, 1), next_ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP or math.inf)
        optimizer.step()
        return loss.detach()

    return step


def our_step(model: TextTransformer, device: str, precision: str, compile: bool = False) -> TransformerUpdates:
    options = from_names(TextOptions, {"precision": precision, "compile": compile, "device": device})
    return TransformerUpdates(model, options, Processes(device))


def copy(model: TextTransformer, device: str) -> TextTransformer:
    twin = TextTransformer(model.shape)
    twin.load_state_dict(model.state_dict())
    return twin.to(device).train()


def timed(step: Step, columns: Columns, first: int, count: int, device: str) -> float:
    """Seconds per step over `count` steps: of the processors, or until the GPU is done."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    for s in range(first, first + count):
        step(s, *columns.at(s))
    if device == "cuda":
        torch.cuda.synchronize()
    return (clock() - start) / count


def compare(corpus: Corpus, device: str, dropout: float, blocks: int, count: int, compiled: bool) -> None:
    torch.manual_seed(0)
    start = TextTransformer(TextShape(vocab_size=corpus.vocab_size, dropout=dropout))
    columns = Columns(corpus.train, BATCH, 35)
    steps: dict[str, Step] = {
        "plain": plain_step(Plain(start).to(device).train()),
        **{name: our_step(copy(start, device), device, name).update for name in ("float32", "bf16-decoder", "bf16")},
    }
    if compiled:
        steps["float32, compiled"] = our_step(copy(start, device), device, "float32", True).update
        steps["bf16, compiled"] = our_step(copy(start, device), device, "bf16", True).update
    losses = {name: torch.stack([step(s, *columns.at(s)) for s in range(COMPARED)]) for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for b in range(blocks):
        for name, step in steps.items():
            times[name].append(timed(step, columns, COMPARED + b * count, count, device))
    print(f"\ndropout {dropout:g}; {blocks} alternating blocks of {count} steps")
    for name, seconds in times.items():
        ratios = [p / t for p, t in zip(times["plain"], seconds, strict=True)]
        difference = float((losses[name] / losses["plain"] - 1).abs().max())
        agreement = f"  losses agree to {difference:.1e} over {COMPARED} steps" if not dropout else ""
        print(
            f"{name:18s} {1e3 * statistics.median(seconds):8.3f} ms/step  {statistics.median(ratios):5.2f}x "
            f"({min(ratios):.2f}-{max(ratios):.2f}){agreement}",
            flush=True,
        )


def recording(corpus: Corpus, device: str, layers: int, precision: str, count: int) -> None:
    """The cost of measuring attention, as often and over as much of the validation split as by default."""
    shape = TextShape(vocab_size=corpus.vocab_size, layers=layers)
    columns = Columns(corpus.train, BATCH, 35)
    every, measured = default_records(shape, len(corpus.valid), BATCH, columns.per_pass, precision)
    model = TextTransformer(shape).to(device).train()
    updates = our_step(model, device, precision)
    windows = spread(consecutive(corpus.valid, 35), measured)
    measurement = AttentionMeasurement(model, torch.from_numpy(windows[:, :-1]).to(device))
    shares = []
    for b in range(5):
        step = timed(updates.update, columns, b * count, count, device)
        start = time.perf_counter()
        measurement.measure()
        spent = time.perf_counter() - start
        if b:  # the first is a warm-up
            shares.append((spent / (every * step), spent, step))
    share, spent, step = sorted(shares)[len(shares) // 2]
    print(
        f"recording, {layers} layer{'s' * (layers > 1)}, {precision}: {1e3 * spent:.1f} ms for "
        f"{len(windows):,} windows, {share:.2%} of {every} steps of {1e3 * step:.2f} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", help="a text file or folder")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--blocks", type=int, default=0, help="blocks of each; by default 25 on a CPU and 9 on a GPU")
    parser.add_argument("--count", type=int, default=0, help="steps in a block; by default 2 on a CPU and 100 on a GPU")
    parser.add_argument("--compiled", action="store_true", help="measure torch.compile too")
    arguments = parser.parse_args()
    count = arguments.count or (2 if arguments.device == "cpu" else 100)
    blocks = arguments.blocks or (25 if arguments.device == "cpu" else 9)
    corpus = read_corpus(arguments.text)
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(
        f"{platform.machine()}, {name}, torch {torch.__version__}, Python {sys.version.split()[0]}; "
        f"{corpus.vocab_size:,} token types, {len(corpus.train):,} training tokens"
    )
    for dropout in (0.0, 0.2):
        compare(corpus, arguments.device, dropout, blocks, count, arguments.compiled)
    for layers in (1, 3):
        for precision in ("float32", "bf16"):
            recording(corpus, arguments.device, layers, precision, max(count, 5))


if __name__ == "__main__":
    main()
