"""Updates against a plain PyTorch loop, in double precision, where both must agree to rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scansnap.dynamics.update_rules import Linear, rate_shares
from scansnap.runtime.errors import InputError
from scansnap.text.corpus import Corpus
from scansnap.text.options import TextShape
from scansnap.text.processes import Processes
from scansnap.text.transformer import TextTransformer, sinusoidal
from scansnap.text.updates import TransformerUpdates
from scansnap.text.windows import Columns, consecutive
from tests.small_text import options
from tests.text.test_transformer import pytorch_layer

pytestmark = pytest.mark.rounding


def shares(schedule: Any, steps: int) -> Any:
    """The share that an update uses; None where it is always 1."""
    every = rate_shares(schedule, steps, np.arange(steps)).tolist()
    return lambda step: None if schedule == "constant" else every[step]


def model(corpus: Corpus, **shape: Any) -> TextTransformer:
    torch.manual_seed(3)
    dimensions = {"window": 7, "width": 12, "feed_forward": 16, "dropout": 0.0, **shape}
    return TextTransformer(TextShape(vocab_size=corpus.vocab_size, **dimensions)).double().train()


def learner(corpus: Corpus, settings: dict[str, Any], **shape: Any) -> TransformerUpdates:
    return TransformerUpdates(model(corpus, **shape), options(**settings), Processes("cpu"))


def batches(corpus: Corpus, steps: range) -> list[Any]:
    columns = Columns(corpus.train, 4, 7)
    return [(step, *columns.at(step)) for step in steps]


class Plain(nn.Module):
    """The same model in PyTorch's own parts."""

    def __init__(self, ours: TextTransformer) -> None:
        super().__init__()
        self.layer = pytorch_layer(ours.layers[0], "post")
        self.embedding, self.decoder, self.bias = (
            nn.Parameter(p.detach().clone()) for p in (ours.embedding, ours.decoder, ours.decoder_bias)
        )

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding[inputs] * math.sqrt(self.embedding.shape[1]) + sinusoidal(7, self.embedding.shape[1])
        mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
        logits = self.layer(x, src_mask=mask) @ self.decoder.T + self.bias
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


OPTIMIZERS: dict[str, tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, float]]] = {
    "sgd": ({}, torch.optim.SGD, {"lr": 5.0}),
    "momentum": ({"momentum": 0.9, "clip": None}, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": ({"optimizer": "adam", "restart_every": 10}, torch.optim.Adam, {"lr": 0.01}),
    "adamw": (
        {"optimizer": "adamw", "weight_decay": 0.1},
        torch.optim.AdamW,
        {"lr": 0.01, "weight_decay": 0.1},
    ),
}
"""Our options, and PyTorch's optimizer with its own."""


@pytest.mark.parametrize(
    ("name", "schedule", "share"),
    [
        *((name, "constant", lambda x: 1.0) for name in OPTIMIZERS),
        ("momentum", "linear", lambda x: 1 - x),
        ("adamw", Linear(end=0.3), lambda x: 1 - 0.7 * x),
    ],
    ids=[*OPTIMIZERS, "momentum, linear", "adamw, linear to 0.3"],
)
def test_updates_are_those_of_the_plain_loop(corpus: Corpus, name: str, schedule: Any, share: Any) -> None:
    """With PyTorch's own scheduler around it; 25 updates."""
    changes, optimizer, theirs_options = OPTIMIZERS[name]
    settings = {"lr_y": theirs_options["lr"], "lr_z": theirs_options["lr"], **changes}
    updates = learner(corpus, settings)
    plain, clip, steps = Plain(updates.model), options(**settings).clip, 25
    theirs, every = optimizer(plain.parameters(), **theirs_options), settings.get("restart_every", steps)
    falling = torch.optim.lr_scheduler.LambdaLR(theirs, lambda k: share(k / steps))
    share_after = shares(schedule, steps)
    for step, inputs, targets in batches(corpus, range(steps)):
        loss = plain.loss(torch.from_numpy(inputs), torch.from_numpy(targets))
        if step % every == 0:
            theirs.state.clear()  # as a new optimizer has it
        theirs.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(plain.parameters(), clip)
        theirs.step()
        falling.step()
        assert abs(float(updates.update(step, inputs, targets, share_after(step))) - float(loss.detach())) < 1e-9
    assert torch.allclose(updates.model.decoder, plain.decoder, atol=1e-8)
    assert torch.allclose(updates.model.embedding, plain.embedding, atol=1e-8)
    assert float(loss.detach()) < 2.5  # it learns: a uniform guess has a loss of 2.9


def test_a_schedule_gives_shares_from_0() -> None:
    assert rate_shares("constant", 5, np.array([3])) == [1.0]
    assert rate_shares("cosine", 4, np.array([1])) == pytest.approx(math.cos(math.pi / 8) ** 2)
    assert rate_shares(Linear(end=-1.0), 4, np.arange(3)).tolist() == [1.0, 0.5, 0.0]
    with pytest.raises(InputError, match=r"schedule linear\(end=-1.0\) gives the share -0.5"):
        rate_shares(Linear(end=-1.0), 4, np.arange(4))
    with pytest.raises(InputError, match="unknown schedule 'steep': choose one of constant, linear"):
        options(schedule="steep")


def test_each_rate_moves_its_own_parameters(corpus: Corpus) -> None:
    for rates, moves_attention in (({"lr_z": 0.0}, False), ({"lr_y": 0.0}, True)):
        updates = learner(corpus, rates, positions="t5", layers=2)
        before = {name: p.detach().clone() for name, p in updates.model.named_parameters()}
        for batch in batches(corpus, range(3)):
            updates.update(*batch)
        for name, parameter in updates.model.named_parameters():
            if name.endswith("key.bias"):  # it shifts all logits of a query equally: its gradient is only rounding
                continue
            is_attention = any(part in name for part in ("query", "key", "relative"))
            assert torch.equal(before[name], parameter) == (is_attention != moves_attention), name


def test_dropout_depends_only_on_seed_and_step(corpus: Corpus) -> None:
    def losses(seed: int, start: int) -> list[float]:
        updates = learner(corpus, {"seed": seed, "lr_y": 0.0, "lr_z": 0.0}, dropout=0.5)
        ((_, *batch),) = batches(corpus, range(1))
        return [float(updates.update(start + step, *batch)) for step in range(3)]

    torch.manual_seed(1)
    first = losses(0, 5)
    torch.manual_seed(2)
    assert losses(0, 5) == first
    assert losses(1, 5) != first
    assert len(set(first)) == 3


def fake_capture(work: Callable[[], object], state: Iterable[Tensor]) -> SimpleNamespace:
    """A warm-up run, undone, and a graph that does the work again."""
    saved = [(tensor, tensor.clone()) for tensor in state]
    work()
    for tensor, value in saved:
        tensor.copy_(value)
    return SimpleNamespace(replay=work)


@pytest.mark.parametrize(
    ("settings", "schedule", "start"),
    [({}, "constant", 0), ({"momentum": 0.9}, "constant", 5), ({"optimizer": "adamw"}, "linear", 5)],
    ids=["sgd", "momentum, resumed", "adamw, falling rate, resumed"],
)
def test_capturing_a_graph_leaves_everything_as_it_was(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], schedule: str, start: int
) -> None:
    share_after = shares(schedule, 10)
    plain, captured = (learner(corpus, {"lr_y": 0.05, "lr_z": 0.02, **settings}, dropout=0.3) for _ in range(2))
    for batch in batches(corpus, range(start)):
        plain.update(*batch, share_after(batch[0]))
    captured.restore({name: value.copy() for name, value in plain.state().items()})
    later = batches(corpus, range(start, start + 5))
    expected = [float(plain.update(*batch, share_after(batch[0]))) for batch in later]
    monkeypatch.setattr(TransformerUpdates, "_captures", True)
    monkeypatch.setattr("scansnap.text.updates.capture_graph", fake_capture)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    assert [float(captured.update(*batch, share_after(batch[0]))) for batch in later] == expected


def test_bf16_is_close_and_learns(corpus: Corpus) -> None:
    losses = {}
    for precision in ("float32", "bf16-decoder", "bf16"):
        updates = TransformerUpdates(model(corpus).float(), options(precision=precision), Processes("cpu"))
        losses[precision] = [float(updates.update(*batch)) for batch in batches(corpus, range(20))]
    for precision in ("bf16-decoder", "bf16"):
        assert 0 < abs(losses[precision][0] / losses["float32"][0] - 1) < 1e-2
        assert abs(losses[precision][-1] / losses["float32"][-1] - 1) < 0.1


def test_evaluation_is_the_mean_over_windows(corpus: Corpus) -> None:
    updates = learner(corpus, {}, dropout=0.5)
    windows = torch.from_numpy(consecutive(corpus.valid, 7))
    expected = float(Plain(updates.model).loss(windows[:, :-1], windows[:, 1:]).detach())
    for rows in (1, 20, 10_000):
        assert updates.evaluate(windows, rows) == pytest.approx(expected, rel=1e-12)
    assert updates.model.training
