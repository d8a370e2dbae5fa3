"""Text training on a GPU, where an update is a graph and the loss has its own kernels: `pytest -m gpu`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics.update_rules import rate_shares
from scansnap.text.corpus import Corpus
from scansnap.text.options import TextShape, YZShape, YZTextOptions
from scansnap.text.processes import Processes
from scansnap.text.transformer import TextTransformer
from scansnap.text.updates import TransformerUpdates, YZUpdates
from scansnap.text.windows import Columns, consecutive
from scansnap.text.yz import YZText
from tests.small_text import SMALL, options

pytestmark = pytest.mark.gpu

RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "adamw": {"optimizer": "adamw", "lr_y": 0.01, "lr_z": 0.01},
    "momentum": {"momentum": 0.9, "lr_y": 0.1, "lr_z": 0.1},
    "falling rate": {"schedule": "linear"},
    "falling rate, adamw": {"schedule": "cosine", "optimizer": "adamw", "lr_y": 0.01, "lr_z": 0.01},
    "bf16": {"precision": "bf16"},
    "bf16 decoder": {"precision": "bf16-decoder"},
    "pre-norm, learned bias": {"norm": "pre", "layers": 2, "positions": "t5"},
    "long windows": {"window": 250, "batch_size": 2, "positions": "t5", "width": 64},
    "long windows, heads": {"window": 250, "batch_size": 2, "positions": "alibi", "width": 64, "heads": 4},
    "long windows, no bias": {"window": 250, "batch_size": 2, "width": 64, "heads": 4, "layers": 2},
}


class Run:
    """Updates of a small model on a device."""

    def __init__(self, corpus: Corpus, device: str, **changes: Any) -> None:
        defaults = {"window": 7, "width": 12, "feed_forward": 8, "dropout": 0.2}
        names = ("layers", "heads", "norm", "positions")
        shape = {k: changes.pop(k, v) for k, v in defaults.items()} | {k: changes.pop(k) for k in names if k in changes}
        run_options = options(device=device, **changes)
        self._schedule = run_options.schedule
        torch.manual_seed(3)
        model = TextTransformer(TextShape(vocab_size=corpus.vocab_size, **shape)).to(device).train()
        self.updates = TransformerUpdates(model, run_options, Processes(device))
        self._columns = Columns(corpus.train, run_options.batch_size, shape["window"])
        self._valid = torch.from_numpy(consecutive(corpus.train, shape["window"])).to(device)

    def losses(self, first: int, last: int) -> list[float]:
        shares = rate_shares(self._schedule, 30, np.arange(30)).tolist()
        rates = [None if self._schedule == "constant" else share for share in shares]
        return [float(self.updates.update(s, *self._columns.at(s), rates[s])) for s in range(first, last)]

    def evaluate(self) -> float:
        return self.updates.evaluate(self._valid, 50)


@pytest.mark.parametrize(
    ("precision", "schedule"),
    [("float32", "constant"), ("float32", "linear"), ("bf16-decoder", "constant"), ("bf16", "constant")],
)
def test_devices_agree(corpus: Corpus, precision: str, schedule: str) -> None:
    settings = {"dropout": 0.0, "lr_y": 0.5, "lr_z": 0.5, "precision": precision, "schedule": schedule}
    cpu, gpu = (Run(corpus, device, **settings) for device in ("cpu", "cuda"))
    close = 2e-5 if precision == "float32" else 3e-2
    np.testing.assert_allclose(gpu.losses(0, 30), cpu.losses(0, 30), rtol=close)
    assert gpu.evaluate() == pytest.approx(cpu.evaluate(), rel=close)


@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS)
def test_repeated_or_resumed_runs_give_identical_numbers(corpus: Corpus, changes: dict[str, Any]) -> None:
    whole = Run(corpus, "cuda", **changes).losses(0, 30)
    assert len(set(whole)) > 20
    assert Run(corpus, "cuda", **changes).losses(0, 30) == whole
    first, second = (Run(corpus, "cuda", **changes) for _ in range(2))
    before = first.losses(0, 13)
    first.evaluate()  # changes nothing
    second.updates.restore(first.updates.state())
    assert before + second.losses(13, 30) == whole
    assert first.losses(13, 30) == whole[13:]


YZ: dict[str, Any] = {"model": "yz", "window": 7, "batch_size": 4, "lr_y": 5.0, "lr_z": 3.0, "patterns": 2}


@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
def test_y_and_z_agree_with_those_on_a_cpu(corpus: Corpus, residual: bool) -> None:
    arguments = {**YZ, "steps": 12, "record_every": 4, "dtype": "float64", "residual": residual}
    cpu, gpu = (ss.train_text(corpus, device=device, **arguments) for device in ("cpu", "cuda"))
    for name in set(cpu.data_vars) - {"winner"}:  # tokens that tie have no order
        np.testing.assert_allclose(gpu[name], cpu[name], rtol=1e-9, atol=1e-12, err_msg=str(name))
    winner, logit = (gpu[name].isel(step=-1).values for name in ("winner", "winner_logit"))
    did_win = np.isfinite(winner)
    theirs = np.take_along_axis(cpu["attention_logits"].values, np.where(did_win, winner, 0).astype(int), -1)
    assert did_win.any()
    np.testing.assert_allclose(theirs[did_win], logit[did_win], rtol=1e-9)


def test_repeated_or_resumed_runs_of_y_and_z_give_identical_numbers(corpus: Corpus) -> None:
    columns = Columns(corpus.train, 4, 7)

    def start() -> YZUpdates:
        with torch.device("cuda"):
            model = YZText(YZShape(vocab_size=corpus.vocab_size, window=7))
        return YZUpdates(model, YZTextOptions(**{**YZ, "device": "cuda"}), Processes("cuda"))

    def losses(updates: YZUpdates, first: int, last: int) -> list[float]:
        return [float(updates.update(s, *columns.at(s))) for s in range(first, last)]

    whole = losses(start(), 0, 30)
    assert len(set(whole)) > 20
    assert losses(start(), 0, 30) == whole
    first, second = start(), start()
    before = losses(first, 0, 13)
    second.restore({name: values.copy() for name, values in first.state().items()})
    assert before + losses(second, 13, 30) == whole


def test_a_run_agrees_with_one_on_a_cpu(corpus: Corpus) -> None:
    arguments = {"steps": 12, "record_every": 4, "evaluate_every": 4, "lr_y": 0.5, "dropout": 0.0, **SMALL}
    cpu, gpu = (ss.train_text(corpus, device=device, **arguments) for device in ("cpu", "cuda"))
    for name in ("loss", "valid_loss", "entropy", "normalized_entropy", "top_1", "top_5", "pattern"):
        np.testing.assert_allclose(gpu[name], cpu[name], rtol=1e-4, atol=1e-5, err_msg=name)
