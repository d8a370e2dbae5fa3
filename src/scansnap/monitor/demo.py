"""A small GPT that learns to repeat, watched while it does.

Its texts are verses of 8 to 32 random words, each repeated to the end of the window.  Nothing predicts the first verse;
from the second on every word can be copied, if the model finds where it stood before and attends one word further.
That takes two layers: a head of the first that lets each word know the word before it, and a head of the second that
finds the place whose word before is the present word, an induction head (Olsson et al., 2022).  Both form together and
suddenly, and the loss falls with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn import functional as F

from scansnap.monitor.verdict_rules import MOST
from scansnap.monitor.watch import Watch, watch
from scansnap.runtime.machine import one_tensor_thread

VOCABULARY = """
ant arm axe bag bat bed bee boy bus cap car cat cow cup day dog ear egg elm eye fan fig fox gas gem gum hat hen ice ink
jam jar key kid leg lip map mud net nut oak oil owl pan pea pen pig pot rat rib rug sea sky sun tea tie toe toy van war
wax web yak zoo
"""
WORDS = VOCABULARY.split()

LENGTH, VERSE = 48, (8, 32)
"""Words in a window, and the shortest and longest verse."""


def train_demo(
    *,
    steps: int = 800,
    every: int = 10,
    store: str | Path | None = None,
    seed: int = 0,
    on_snapshot: Callable[[int, float, Watch], None] = lambda step, loss, watching: None,
) -> Watch:
    """Train the model for `steps` steps and watch it; the loss is the mean since the snapshot before.

    `on_snapshot` is called after each snapshot with the step, that loss and the watch.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SmallGPT(len(WORDS))
    texts = torch.Generator().manual_seed(seed + 1)
    watching = watch(model, probe=verses(8, texts), every=every, store=store, tokens=WORDS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recent: list[float] = []
    with watching, one_tensor_thread():  # products as small as these take longer on several threads
        for step in range(1, steps + 1):
            ids = verses(32, texts)
            loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recent.append(loss.item())
            mean = math.fsum(recent) / len(recent)
            watching.step(loss=mean)
            if step % every == 0:
                recent.clear()
                on_snapshot(step, mean, watching)
    return watching


def most_inductive(snapshots: xr.Dataset) -> tuple[int, int]:
    """The layer and head that attended most to what followed the same word before, at the last snapshot."""
    scores = snapshots["prefix_matching"].values[-1]
    layer, head = np.unravel_index(int(scores.argmax()), scores.shape)
    return int(layer), int(head)


def story(snapshots: xr.Dataset) -> str:
    """In words, what was seen to form, and when."""
    layer, head = most_inductive(snapshots)
    score, steps = snapshots["prefix_matching"].values[:, layer, head], snapshots["step"].values.tolist()
    where = f"layer {layer}, head {head}"
    if score[-1] < MOST:
        return (
            f"no induction head has formed by step {steps[-1]:,}: {where} has {score[-1]:.0%} of its attention on "
            "what followed the same word before; train for longer"
        )
    few, half = (int(np.flatnonzero(score < limit)[-1]) for limit in (0.1, MOST))  # the last snapshots below
    loss = snapshots["loss"].values
    previous = snapshots["previous_token"].values[-1, 0]
    return (
        f"{where} became an induction head: until step {steps[few]:,} less than 10% of its attention was on what "
        f"followed the same word before, after step {steps[half]:,} more than half, at the end {score[-1]:.0%}\n"
        f"the loss fell from {loss[few]:.2f} to {loss[half]:.2f} between these steps and is {loss[-1]:.2f}; "
        f"in layer 0, head {int(previous.argmax())} attends most to the word before ({previous.max():.0%})"
    )


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
