"""Updates against a plain PyTorch loop, in double precision, where both must agree to rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from scansnap.corpus.batches import Columns, consecutive
from scansnap.corpus.corpus import Corpus
from scansnap.dynamics.schedules import Linear, rate_shares
from scansnap.runtime.errors import InputError
from scansnap.text.options import TextShape
from scansnap.text.processes import Processes
from scansnap.text.transformer import TextTransformer, sinusoidal
from scansnap.text.updates import TransformerUpdates
from tests.small_text import options


def model(corpus: Corpus, **shape: Any) -> TextTransformer:
    torch.manual_seed(3)
    dimensions = {"window": 7, "width": 12, "feed_forward": 8, "dropout": 0.0, **shape}
    return TextTransformer(TextShape(vocab_size=corpus.vocab_size, **dimensions)).double().train()


class Plain(nn.Module):
    """The same model in PyTorch's own parts, with autograd throughout."""

    def __init__(self, ours: TextTransformer) -> None:
        super().__init__()
        block, width = ours.layers[0], ours.shape.width
        self.layer = nn.TransformerEncoderLayer(width, 1, ours.shape.feed_forward, 0.0, batch_first=True).double()
        self.embedding, self.decoder, self.bias = (
            nn.Parameter(p.detach().clone()) for p in (ours.embedding, ours.decoder, ours.decoder_bias)
        )
        with torch.no_grad():
            attention = self.layer.self_attn
            attention.in_proj_weight.copy_(torch.cat([block.query.weight, block.key.weight, block.value.weight]))
            attention.in_proj_bias.copy_(torch.cat([block.query.bias, block.key.bias, block.value.bias]))
            layer = self.layer
            for theirs, part in (
                (attention.out_proj, block.output),
                (layer.linear1, block.inner),
                (layer.linear2, block.outer),
                (layer.norm1, block.norm_attention),
                (layer.norm2, block.norm_feed_forward),
            ):
                theirs.load_state_dict(part.state_dict())

    def loss(self, inputs, targets):
        x = self.embedding[inputs] * math.sqrt(self.embedding.shape[1]) + sinusoidal(7, self.embedding.shape[1])
        mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
        logits = self.layer(x, src_mask=mask) @ self.decoder.T + self.bias
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


OPTIMIZERS = pytest.mark.parametrize(
    ("settings", "optimizer"),
    [
        ({"lr_y": 5.0, "lr_z": 5.0}, lambda p: torch.optim.SGD(p, lr=5.0)),
        ({"momentum": 0.9, "clip": None, "lr_y": 0.1, "lr_z": 0.1}, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        ({"optimizer": "adam", "lr_y": 0.01, "lr_z": 0.01}, lambda p: torch.optim.Adam(p, lr=0.01)),
        (
            {"optimizer": "adamw", "lr_y": 0.01, "lr_z": 0.01, "weight_decay": 0.1},
            lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        ),
    ],
    ids=["sgd", "momentum", "adam", "adamw"],
)


@OPTIMIZERS
def test_losses_are_those_of_the_plain_loop(corpus: Corpus, settings: dict, optimizer: Any) -> None:
    ours = model(corpus)
    plain = Plain(ours)
    columns = Columns(corpus.train, 4, 7)
    run_options = options(**settings)
    updates, theirs = TransformerUpdates(ours, run_options, Processes("cpu")), optimizer(plain.parameters())
    for step in range(25):
        inputs, targets = columns.at(step)
        loss = plain.loss(torch.from_numpy(inputs), torch.from_numpy(targets))
        theirs.zero_grad()
        loss.backward()
        if run_options.clip is not None:
            nn.utils.clip_grad_norm_(plain.parameters(), run_options.clip)
        theirs.step()
        assert abs(float(updates.update(step, inputs, targets)) - float(loss.detach())) < 1e-9
    assert torch.allclose(ours.decoder, plain.decoder, atol=1e-8)
    assert torch.allclose(ours.embedding, plain.embedding, atol=1e-8)
    assert float(loss.detach()) < 2.5  # it learns: a uniform guess has a loss of 2.9


@OPTIMIZERS
@pytest.mark.parametrize("schedule", ["linear", "cosine", Linear(end=0.3)], ids=str)
def test_a_schedule_is_a_rate_that_changes(corpus: Corpus, settings: dict, optimizer: Any, schedule: Any) -> None:
    """Against the scheduler of PyTorch around the plain loop."""
    ours = model(corpus)
    plain = Plain(ours)
    columns, run_options = Columns(corpus.train, 4, 7), options(**settings)
    updates, theirs = TransformerUpdates(ours, run_options, Processes("cpu")), optimizer(plain.parameters())
    steps = 12
    shares = {"linear": lambda k: 1 - k / steps, "cosine": lambda k: math.cos(math.pi * k / steps / 2) ** 2}
    falling = torch.optim.lr_scheduler.LambdaLR(theirs, shares.get(str(schedule), lambda k: 1 - 0.7 * k / steps))
    share_after = rate_shares(schedule, steps)
    for step in range(steps):
        inputs, targets = columns.at(step)
        theirs.zero_grad()
        plain.loss(torch.from_numpy(inputs), torch.from_numpy(targets)).backward()
        if run_options.clip is not None:
            nn.utils.clip_grad_norm_(plain.parameters(), run_options.clip)
        theirs.step()
        falling.step()
        updates.update(step, inputs, targets, share_after(step))
    assert torch.allclose(ours.decoder, plain.decoder, atol=1e-9)
    assert torch.allclose(ours.embedding, plain.embedding, atol=1e-9)


def test_a_schedule_gives_shares_from_0() -> None:
    assert rate_shares("constant", 5)(3) is None
    share_after = rate_shares(Linear(end=-1.0), 4)
    assert [share_after(step) for step in range(3)] == [1.0, 0.5, 0.0]
    with pytest.raises(InputError, match=r"schedule linear\(end=-1.0\) gives the share -0.5 after 3 of 4 updates"):
        share_after(3)
    with pytest.raises(InputError, match="unknown schedule 'steep': choose one of constant, linear"):
        options(schedule="steep")


def test_each_rate_moves_its_own_parameters(corpus: Corpus) -> None:
    for rates, still in (({"lr_z": 0.0}, True), ({"lr_y": 0.0}, False)):
        ours = model(corpus, positions="t5", layers=2)
        before = {name: p.detach().clone() for name, p in ours.named_parameters()}
        attention = {id(p) for p in ours.attention_parameters()}
        updates = TransformerUpdates(ours, options(**rates), Processes("cpu"))
        for step in range(3):
            updates.update(step, *Columns(corpus.train, 4, 7).at(step))
        for name, parameter in ours.named_parameters():
            moved = not torch.equal(before[name], parameter)
            # a bias of keys shifts all logits of a query equally: its gradient is only rounding
            if name.endswith("key.bias"):
                continue
            assert moved == ((id(parameter) not in attention) == still), name


def test_dropout_depends_only_on_seed_and_step(corpus: Corpus) -> None:
    def losses(seed: int, start: int) -> list[float]:
        updates = TransformerUpdates(
            model(corpus, dropout=0.5), options(seed=seed, lr_y=0.0, lr_z=0.0), Processes("cpu")
        )
        return [float(updates.update(start + s, *Columns(corpus.train, 4, 7).at(0))) for s in range(3)]

    torch.manual_seed(1)
    first = losses(0, 5)
    torch.manual_seed(2)
    assert losses(0, 5) == first
    assert losses(1, 5) != first
    assert len(set(first)) == 3


def test_the_state_is_complete(corpus: Corpus) -> None:
    columns = Columns(corpus.train, 4, 7)
    for optimizer in ("sgd", "adamw"):
        run_options = options(optimizer=optimizer, lr_y=0.05, lr_z=0.02, momentum=0.9 if optimizer == "sgd" else 0.0)
        whole = TransformerUpdates(model(corpus, dropout=0.3), run_options, Processes("cpu"))
        losses = [float(whole.update(s, *columns.at(s))) for s in range(12)]
        first = TransformerUpdates(model(corpus, dropout=0.3), run_options, Processes("cpu"))
        early = [float(first.update(s, *columns.at(s))) for s in range(7)]
        second = TransformerUpdates(model(corpus, dropout=0.3), run_options, Processes("cpu"))
        second.restore({name: np.array(value) for name, value in first.state().items()})
        assert early + [float(second.update(s, *columns.at(s))) for s in range(7, 12)] == losses


def fake_capture(work: Callable[[], object], state: Iterable[torch.Tensor]) -> SimpleNamespace:
    """A warm-up run, undone, and a graph that does the work again."""
    saved = [(tensor, tensor.clone()) for tensor in state]
    work()
    for tensor, value in saved:
        tensor.copy_(value)
    return SimpleNamespace(replay=work)


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"optimizer": "adamw"}], ids=["sgd", "momentum", "adamw"])
@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_capturing_leaves_everything_as_it_was(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, settings: dict, schedule: str, resumed: bool
) -> None:
    columns, run_options = Columns(corpus.train, 4, 7), options(lr_y=0.05, lr_z=0.02, **settings)
    share_after = rate_shares(schedule, 10)
    plain, captured = (TransformerUpdates(model(corpus, dropout=0.3), run_options, Processes("cpu")) for _ in range(2))
    start = 0
    if resumed:
        start = 5
        for step in range(start):
            plain.update(step, *columns.at(step), share_after(step))
        captured.restore({name: value.copy() for name, value in plain.state().items()})
    expected = [float(plain.update(s, *columns.at(s), share_after(s))) for s in range(start, start + 5)]
    monkeypatch.setattr(TransformerUpdates, "_captures", True)
    monkeypatch.setattr("scansnap.text.updates.capture", fake_capture)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    losses = [float(captured.update(s, *columns.at(s), share_after(s))) for s in range(start, start + 5)]
    assert losses == expected


def test_bf16_is_close_and_learns(corpus: Corpus) -> None:
    columns = Columns(corpus.train, 4, 7)
    losses = {}
    for precision in ("float32", "bf16-decoder", "bf16"):
        updates = TransformerUpdates(model(corpus).float(), options(precision=precision), Processes("cpu"))
        losses[precision] = [float(updates.update(s, *columns.at(s))) for s in range(20)]
    for precision in ("bf16-decoder", "bf16"):
        assert 0 < abs(losses[precision][0] / losses["float32"][0] - 1) < 1e-2
        assert abs(losses[precision][-1] / losses["float32"][-1] - 1) < 0.1


def test_evaluation_is_the_mean_over_windows(corpus: Corpus) -> None:
    ours = model(corpus, dropout=0.5)
    updates = TransformerUpdates(ours, options(), Processes("cpu"))
    windows = torch.from_numpy(consecutive(corpus.valid, 7))
    plain = Plain(ours)
    expected = float(plain.loss(windows[:, :-1], windows[:, 1:]).detach())
    for rows in (1, 20, 10_000):
        assert updates.evaluate(windows, rows) == pytest.approx(expected, rel=1e-6)
    assert ours.training


def test_windows_cover_the_text_in_order(corpus: Corpus) -> None:
    columns = Columns(corpus.train, 4, 7)
    length = len(corpus.train) // 4
    inputs, targets = columns.at(3)
    for row in range(4):
        first = row * length + 21
        assert inputs[row].tolist() == corpus.train[first : first + 7].tolist()
        assert targets[row].tolist() == corpus.train[first + 1 : first + 8].tolist()
    again = columns.at(columns.per_pass)
    assert np.array_equal(again[0], columns.at(0)[0])
    assert columns.per_pass == (length - 1) // 7
    windows = consecutive(corpus.valid, 7)
    assert windows[:, :-1].ravel().tolist() == corpus.valid[: len(windows) * 7].tolist()
    assert (windows[:-1, -1] == windows[1:, 0]).all()


def test_windows_of_a_long_text_are_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.arange(1000, dtype=np.int32)
    monkeypatch.setattr("scansnap.corpus.batches.MOST_TOKENS", 100)
    windows = consecutive(tokens, 10)
    assert windows.shape == (10, 11)
    assert (np.diff(windows) == 1).all()
    assert windows[0, 0] == 0
    assert windows[-1, -1] == 990
    assert set(np.diff(windows[:, 0])) <= {100, 110}


def test_too_little_text_is_refused(corpus: Corpus) -> None:
    with pytest.raises(InputError, match=r"too few for a batch of 100 windows of 7 tokens and a next token"):
        Columns(corpus.train, 100, 7)
    with pytest.raises(InputError, match=r"the validation text has 5 tokens, fewer than a window of 7"):
        consecutive(corpus.valid[:5], 7)
