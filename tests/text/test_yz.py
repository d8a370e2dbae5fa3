"""Y and Z on text: their closed form against autograd of the dense model, what a run records, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import scansnap as ss
from scansnap.corpus.batches import Columns
from scansnap.corpus.corpus import Corpus
from scansnap.runtime.errors import InputError
from scansnap.systems.yz.layer import YZTransformer
from scansnap.text import yz
from scansnap.text.options import YZShape, text_options
from scansnap.text.yz import YZText

pytestmark = pytest.mark.rounding

SMALL: dict[str, Any] = {"model": "yz", "window": 7, "batch_size": 4, "patterns": 2, "lr_y": 5.0, "lr_z": 3.0}


def trained(corpus: Corpus, **options: Any) -> tuple[xr.Dataset, YZText]:
    training = ss.text_training(corpus, text_options({**SMALL, **options}))
    run = training.run(False)
    assert isinstance(training.model, YZText)
    return run, training.model


def prefix_loss(plain: YZTransformer, ids: torch.Tensor, next_tokens: torch.Tensor) -> torch.Tensor:
    """The mean loss over positions of the dense model on one-hot vectors, each position a sequence of its own."""
    losses = [plain.loss(ids[:, : t + 1], next_tokens[:, t]) for t in range(1, ids.shape[1])]
    return torch.stack(losses).mean()  # each is a mean over windows


@pytest.mark.parametrize(
    ("residual", "schedule"),
    [(False, "constant"), (True, "linear")],
    ids=["plain", "residual, falling rate"],
)
def test_runs_are_those_of_autograd(
    corpus: Corpus, residual: bool, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight updates of the dense model, each position a sequence of its own, by torch's own SGD.

    Tokens repeat in windows; the four windows are taken in two parts.
    """
    monkeypatch.setitem(yz.LOGITS_AT_ONCE, "cpu", 2 * 7 * corpus.vocab_size)
    steps = 8
    run, model = trained(corpus, steps=steps, record_every=1, residual=residual, dtype="float64", schedule=schedule)
    plain = YZTransformer(corpus.vocab_size, residual=residual, dtype=torch.float64)
    rates = [{"params": [plain.decoder], "lr": 5.0}, {"params": [plain.attention_logits], "lr": 3.0}]
    optimizer = torch.optim.SGD(rates)
    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 - k / steps * (schedule == "linear"))
    columns = Columns(corpus.train, 4, 7)
    losses = []
    for step in range(steps):
        ids, next_tokens = (torch.from_numpy(part) for part in columns.at(step))
        loss = prefix_loss(plain, ids, next_tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()
        losses.append(loss.item())
    np.testing.assert_allclose(run["loss"].values[0, 1:], losses, rtol=1e-12)
    assert losses[-1] < 0.9 * losses[0]
    assert model.loss(ids, next_tokens).item() == pytest.approx(prefix_loss(plain, ids, next_tokens).item(), rel=1e-12)
    for ours, theirs in ((model.decoder, plain.decoder), (model.attention_logits, plain.attention_logits)):
        assert float(theirs.detach().abs().max()) > 1e-3
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-10, atol=1e-13, check_dtype=True)


def test_a_run_records_what_it_says(corpus: Corpus) -> None:
    run, model = trained(corpus, steps=12, record_every=5, evaluate_every=5, queries=3)
    assert run["step"].values.tolist() == [0, 5, 10, 12]
    assert run["pattern"].shape == (1, 4, 1, 1, 2, 7, 7)
    assert np.isfinite(run["valid_loss"].values[0]).tolist() == [False, True, True, True]
    np.testing.assert_allclose(run["normalized_entropy"].values[0, 0], 1.0, rtol=1e-6)  # uniform at the start
    pattern = run["pattern"].isel(run=0, layer=0, head=0)
    np.testing.assert_allclose(pattern.sum("key_position").isel(query_position=slice(1, None)), 1.0, rtol=1e-6)
    assert not np.triu(pattern.values).any()  # neither itself nor what comes later
    ids = torch.from_numpy(np.asarray(corpus.valid[:7], np.int64))[None]
    np.testing.assert_allclose(pattern.values[-1, 0], model.attention(ids)[0][0, 0], atol=1e-6)
    described = json.loads(run.attrs["options"])
    assert (described["model"], described["lr_z"], "width" in described) == ("yz", 3.0, False)


def test_the_rows_of_frequent_queries_are_kept_with_their_winners(corpus: Corpus) -> None:
    run, model = trained(corpus, steps=20, record_every=10, queries=3)
    counts = np.bincount(corpus.train)
    assert run["query_word"].values.tolist() == corpus.words(run["query"].values)
    assert "<eos>" not in run["query_word"].values
    assert counts[run["query"].values[-1]] >= np.sort(counts)[-4]
    rows = run["attention_logits"].isel(run=0, layer=0, head=0).values
    assert rows.shape == (3, corpus.vocab_size)
    queries = torch.from_numpy(run["query"].values.copy())
    np.testing.assert_array_equal(rows, model.attention_logits[queries])
    np.testing.assert_array_equal(rows, model.logits_between(queries, torch.arange(corpus.vocab_size))[0])
    assert np.isnan(run["winner"].values[0, 0]).all()  # nothing has gained yet
    for i, row in enumerate(rows):
        winners = run["winner"].values[0, -1, 0, 0, i]
        gained = min(10, int((row > 0).sum()))
        assert gained > 1
        np.testing.assert_array_equal(np.sort(row)[::-1][:gained], row[winners[:gained].astype(int)])
        np.testing.assert_array_equal(
            run["winner_logit"].values[0, -1, 0, 0, i, :gained], row[winners[:gained].astype(int)]
        )
        assert np.isnan(winners[gained:]).all()
    assert "winner" not in trained(corpus, steps=1, queries=0)[0]


def test_windows_of_a_large_vocabulary_are_added_in_a_fixed_order() -> None:
    """With as many rows as several threads share, two runs of the same updates end in the same bits."""
    tokens = torch.randint(0, 50, (64, 21), generator=torch.Generator().manual_seed(2)) ** 2 // 50
    models = [YZText(YZShape(vocab_size=2000)) for _ in range(3)]
    for model in models:
        for _ in range(3):
            model.step(tokens[:, :-1], tokens[:, 1:], lr_y=3.0, lr_z=3.0)
    for model in models[1:]:
        assert torch.equal(model.decoder, models[0].decoder)
        assert torch.equal(model.attention_logits, models[0].attention_logits)


def test_options_can_be_one_object(corpus: Corpus) -> None:
    options = ss.YZTextOptions(steps=2, window=7, batch_size=4, record_every=1)
    assert (options.lr_y, options.model, ss.YZTextOptions().window, ss.YZTextOptions().batch_size) == (30, "yz", 36, 64)
    run = ss.train_text(corpus, **vars(options))
    assert run["lr_z"].item() == 30.0
    xr.testing.assert_equal(run, ss.train_text(corpus, model="yz", steps=2, window=7, batch_size=4, record_every=1))
    with pytest.raises(InputError, match="model is transformer, but these are YZTextOptions: give TextOptions"):
        replace(options, model="transformer")


def test_several_processes_are_refused(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scansnap.text.processes.distributed.is_initialized", lambda: True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="the model yz is trained by one process, but there are 2"):
        ss.train_text(corpus, **SMALL)


def test_too_many_types_are_refused_before_memory_is_filled(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scansnap.runtime.machine.physical_memory", lambda: 2 * corpus.vocab_size**2 * 4 - 1)
    with pytest.raises(InputError, match=r"Y and Z of 17 token types need 2\.3 KiB, .*: read the text with a larger"):
        ss.train_text(corpus, **SMALL, steps=1)
