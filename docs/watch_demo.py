"""Train a small GPT on verses that repeat, and watch induction heads form: half a minute on a CPU.

python docs/watch_demo.py [--steps 800] [--every 10] [--seed 0] [--store demo.zarr] [--page watch-demo.html]

A verse is 8 to 32 random words; it is repeated to the end of the window.  Nothing predicts the first verse.  From the
second on every word can be copied, if the model finds where it stood before and attends one word further.  That takes
two layers: in the first a head that lets each word know the word before it, and in the second an induction head, which
finds the place whose word before is the present word (Olsson et al., 2022).  Both form together and suddenly, and the
loss falls with them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import scansnap as ss

VOCABULARY = """
ant arm axe bag bat bed bee boy bus cap car cat cow cup day dog ear egg elm eye fan fig fox gas gem gum hat hen ice ink
jam jar key kid leg lip map mud net nut oak oil owl pan pea pen pig pot rat rib rug sea sky sun tea tie toe toy van war
wax web yak zoo
"""
WORDS = VOCABULARY.split()

LENGTH = 48
"""Words in a window."""

VERSE = (8, 32)
"""Words of the shortest and of the longest verse."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=800, help="steps of training")
    parser.add_argument("--every", type=int, default=10, help="steps between snapshots")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the texts")
    parser.add_argument("--store", type=Path, help="where to write the snapshots (zarr)")
    parser.add_argument("--page", type=Path, default=Path("watch-demo.html"), help="where to write the page")
    options = parser.parse_args()
    torch.set_num_threads(1)  # products as small as these take longer on several threads
    with train(options.steps, options.every, options.seed, options.store) as watch:
        for verdict in watch.verdicts:
            print(verdict)
        ss.write_watch_page(options.page, watch.dataset)
    print(f"page: {options.page}   (open it in a browser)")


def train(steps: int, every: int, seed: int = 0, store: Path | None = None) -> ss.Watch:
    """The watch of a training run, which prints prefix matching: attention on what followed the same word before."""
    torch.manual_seed(seed)
    model = SmallGPT(len(WORDS))
    texts = torch.Generator().manual_seed(seed + 1)
    watch = ss.watch(model, probe=verses(8, texts), every=every, store=store, tokens=WORDS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        ids = verses(32, texts)
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss=loss)
        if step % 100 == 0:
            heads = watch.dataset["prefix_matching"].values[-1, -1]
            matching = ", ".join(f"{head:.0%}" for head in heads)
            print(f"step {step:,} of {steps:,}: loss {loss:.2f}; prefix matching in the last layer: {matching}")
    return watch


def verses(count: int, generator: torch.Generator) -> Tensor:
    """Windows of random words that repeat after a verse of random length; no word is twice in a verse."""
    words = torch.rand(count, len(WORDS), generator=generator).argsort(1)
    lengths = torch.randint(VERSE[0], VERSE[1] + 1, (count, 1), generator=generator)
    return words.gather(1, torch.arange(LENGTH) % lengths)


class SmallGPT(nn.Module):
    """Two pre-norm blocks of four heads, learned positions."""

    def __init__(self, vocab: int, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocab, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.decoder = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.05)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.decoder(self.norm(x))


class Block(nn.Module):
    """Attention, then a feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class Attention(nn.Module):
    """Causal self-attention by PyTorch's fused kernel, which returns no weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projection, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.projection(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)  # (B, H, 3, T, d)
        query, key, value = parts.unbind(2)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(attended.transpose(1, 2).flatten(2))


if __name__ == "__main__":
    main()
