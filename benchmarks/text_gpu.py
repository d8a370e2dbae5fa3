"""Text training on a GPU: the same losses as on a CPU, and identical ones when repeated or resumed in the middle.

python benchmarks/text_gpu.py PATH
"""

from __future__ import annotations

import sys

import torch

from scansnap.text.corpus import read_corpus
from scansnap.text.options import TextOptions, TextShape
from scansnap.text.processes import Processes
from scansnap.text.transformer import TextTransformer
from scansnap.text.updates import TransformerUpdates
from scansnap.text.windows import Columns
from scansnap.validation.options import from_names

STEPS = 200


def updates(vocab_size: int, device: str, dropout: float, optimizer: str = "sgd") -> TransformerUpdates:
    torch.manual_seed(0)
    model = TextTransformer(TextShape(vocab_size=vocab_size, dropout=dropout)).to(device).train()
    rate = 1.0 if optimizer == "sgd" else 1e-3
    options = from_names(TextOptions, {"lr_y": rate, "optimizer": optimizer, "device": device})
    return TransformerUpdates(model, options, Processes(device))


def main() -> None:
    corpus = read_corpus(sys.argv[1])
    columns = Columns(corpus.train, 20, 35)

    def losses(run: TransformerUpdates, first: int, last: int) -> list[float]:
        return [float(run.update(s, *columns.at(s))) for s in range(first, last)]

    cpu = losses(updates(corpus.vocab_size, "cpu", 0.0), 0, 10)
    gpu = losses(updates(corpus.vocab_size, "cuda", 0.0), 0, 10)
    print(f"CPU and GPU over 10 steps: {max(abs(a - b) for a, b in zip(cpu, gpu, strict=True)):.1e}")
    for optimizer in ("sgd", "adamw"):
        whole = losses(updates(corpus.vocab_size, "cuda", 0.2, optimizer), 0, STEPS)
        again = losses(updates(corpus.vocab_size, "cuda", 0.2, optimizer), 0, STEPS)
        first = updates(corpus.vocab_size, "cuda", 0.2, optimizer)
        before = losses(first, 0, STEPS // 2)
        second = updates(corpus.vocab_size, "cuda", 0.2, optimizer)
        second.restore(first.state())
        after = losses(second, STEPS // 2, STEPS)
        print(
            f"{optimizer}: {whole[0]:.4f} to {whole[-1]:.4f}; repeated "
            f"{'identical' if whole == again else 'DIFFERENT'}; resumed at step {STEPS // 2} "
            f"{'identical' if whole == before + after else 'DIFFERENT'}"
        )


if __name__ == "__main__":
    main()
