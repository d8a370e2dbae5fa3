"""Watches in Hugging Face's Trainer and in Lightning, with small models made on the spot."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import scansnap as ss
from scansnap.monitor.store import read_snapshots
from tests.monitor.small_models import GPT

IDS = torch.randint(0, 20, (24, 16), generator=torch.Generator().manual_seed(0))


def hugging_face_trainer(folder, *, callback=None, steps: int = 6, model=None):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=20, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    rows = [{"input_ids": row, "labels": row} for row in IDS]
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="steps",
        save_steps=4,
        logging_steps=3,
        disable_tqdm=True,
        use_cpu=True,
        gradient_accumulation_steps=2,
    )
    return Trainer(
        model=model or GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=rows,
        callbacks=[callback] if callback else None,
    )


def test_in_the_trainer_of_hugging_face(tmp_path) -> None:
    """With dropout: the same weights, bit for bit, with and without; snapshots at the trainer's own steps; a training
    that goes on from a checkpoint goes on with its snapshots."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    callback = ss.TrainerWatch(probe={"input_ids": IDS[:2]}, every=2, store=tmp_path / "a.zarr")
    watched = hugging_face_trainer(tmp_path / "watched", callback=callback)
    watched.train()
    plain = hugging_face_trainer(tmp_path / "plain")
    plain.train()
    for name, weight in plain.model.state_dict().items():
        assert torch.equal(weight, watched.model.state_dict()[name]), name
    snapshots = read_snapshots(tmp_path / "a.zarr")
    assert snapshots["step"].values.tolist() == [0, 2, 4, 6]
    assert snapshots["module"].values.tolist() == ["transformer.h.0.attn", "transformer.h.1.attn"]
    logged = {entry["step"]: entry["loss"] for entry in watched.state.log_history if "loss" in entry}
    np.testing.assert_array_equal(snapshots["loss"], [np.nan, np.nan, logged[3], logged[6]])  # the last that was logged
    np.testing.assert_allclose(snapshots["learning_rate"], [5e-5 * (1 - step / 6) for step in (0, 2, 4, 6)])
    assert callback.watch is not None
    assert callback.watch.verdicts == ss.judge_heads(snapshots)

    from transformers import TrainerCallback

    class Interrupt(TrainerCallback):
        step: int | None

        def on_step_end(self, args, state, control, **_) -> None:
            if state.global_step == self.step:
                raise KeyboardInterrupt

    again = ss.TrainerWatch(probe={"input_ids": IDS[:2]}, every=2, store=tmp_path / "a.zarr")
    resumed = hugging_face_trainer(tmp_path / "watched", callback=again, steps=10)
    resumed.add_callback(interrupt := Interrupt())
    checkpoint, kept = str(tmp_path / "watched" / "checkpoint-4"), "snapshots up to step 6; those after step 4 are kept"
    interrupt.step = 5  # as in a notebook, where the same trainer then goes on
    with pytest.warns(UserWarning, match=kept), pytest.raises(KeyboardInterrupt):
        resumed.train(resume_from_checkpoint=checkpoint)
    interrupt.step = None
    with pytest.warns(UserWarning, match=kept):
        resumed.train(resume_from_checkpoint=checkpoint)
    assert read_snapshots(tmp_path / "a.zarr")["step"].values.tolist() == [0, 2, 4, 6, 8, 10]


def test_tokens_are_called_what_the_trainers_tokenizer_calls_them() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizer = SimpleNamespace(decode=lambda ids: "".join(chr(ord("a") + token) for token in ids))
    callback = ss.TrainerWatch(probe=IDS[:2])
    callback.on_train_begin(None, SimpleNamespace(global_step=7), None, model=GPT(), processing_class=tokenizer)
    assert callback.watch is not None
    assert callback.watch.dataset["token"].values.tolist() == list(tokenizer.decode(IDS[0].tolist()))
    assert callback.watch.dataset["step"].values.tolist() == [7]


@pytest.mark.parametrize("kind", ["TrainerWatch", "LightningWatch"])
def test_what_is_given_to_a_callback_comes_before_what_it_finds(kind: str) -> None:
    pytest.importorskip({"TrainerWatch": "transformers", "LightningWatch": "lightning"}[kind])
    model, found = GPT(), SimpleNamespace(decode=lambda _: "found")
    given, other = (torch.optim.SGD(model.parameters(), lr) for lr in (0.5, 0.25))
    given_options = {"start": 3, "optimizer": given, "tokens": lambda token: f"given {token}"}
    names = ("given 0", "found" if kind == "TrainerWatch" else "0")
    for options, step, rate, name in ((given_options, 3, 0.5, names[0]), ({}, 7, 0.25, names[1])):
        callback = getattr(ss, kind)(probe=torch.zeros(1, 4, dtype=torch.long), **options)
        if kind == "TrainerWatch":
            state = SimpleNamespace(global_step=7)
            callback.on_train_begin(None, state, None, model=model, processing_class=found, optimizer=other)
        else:
            callback.on_train_start(SimpleNamespace(global_step=7, optimizers=[other]), model)
        first = callback.watch.dataset.isel(step=0)
        assert (first["step"].item(), first["learning_rate"].item(), first["token"].values[0]) == (step, rate, name)


def lightning_fit(folder, *, callback=None) -> torch.nn.Module:
    import lightning.pytorch as lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.losses = GPT(dropout=0.1), list[float]()

        def forward(self, ids):
            return self.net(ids)

        def training_step(self, batch, _):
            (ids,) = batch
            loss = torch.nn.functional.cross_entropy(self(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    torch.manual_seed(0)
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=6,
        accumulate_grad_batches=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(folder),
        callbacks=[callback] if callback else None,
    )
    trainer.fit(module, DataLoader(TensorDataset(IDS), batch_size=4, shuffle=True))
    return module


@pytest.mark.filterwarnings("ignore")
def test_in_lightning(tmp_path) -> None:
    """With dropout, shuffling and accumulation: the same weights with and without, and snapshots at updates."""
    pytest.importorskip("lightning", reason="lightning is not installed")
    callback = ss.LightningWatch(probe=IDS[:2], every=2, store=tmp_path / "a.zarr")
    watched = lightning_fit(tmp_path, callback=callback)
    plain = lightning_fit(tmp_path)
    for name, weight in plain.state_dict().items():
        assert torch.equal(weight, watched.state_dict()[name]), name
    snapshots = read_snapshots(tmp_path / "a.zarr")
    assert snapshots["step"].values.tolist() == [0, 2, 4, 6]
    assert snapshots["module"].values.tolist() == ["net.blocks.0.attn", "net.blocks.1.attn"]
    np.testing.assert_allclose(snapshots["loss"], [np.nan, *watched.losses[3::4]], rtol=1e-6)  # two batches an update
    assert snapshots["learning_rate"].values.tolist() == [1e-2] * 4


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_fails_in_lightning_leaves_the_store_to_others(tmp_path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")

    class Failing(ss.LightningWatch):
        def on_train_batch_end(self, *_: object, **__: object) -> None:
            raise RuntimeError("the loss is not finite")

    callback = Failing(probe=IDS[:2], store=tmp_path / "a.zarr")
    with pytest.raises(RuntimeError, match="the loss is not finite"):
        lightning_fit(tmp_path, callback=callback)
    with pytest.raises(
        ss.StoreError, match="model 'Module' and not 'GPT'"
    ):  # what is there can be opened: it is of another model
        ss.watch(GPT(), probe=IDS[:2], store=tmp_path / "a.zarr")


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [("TrainerWatch", "trainer", "transformers"), ("LightningWatch", "lightning", "lightning")],
)
def test_a_missing_package_is_a_sentence(name: str, module: str, package: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, f"{package}.pytorch", None)
    monkeypatch.delitem(sys.modules, f"scansnap.monitor.{module}", raising=False)
    with pytest.raises(ss.InputError, match=f"{name} needs {package}, which is not installed here: pip install"):
        importlib.import_module(f"scansnap.monitor.{module}")


def test_the_documentation_names_the_oldest_versions_that_are_tested() -> None:
    root = Path(__file__).parents[2]
    pinned = re.findall(r"^(\w+)==(.*)$", (root / "tests/monitor/oldest_versions.txt").read_text(), re.MULTILINE)
    assert [name for name, _ in pinned] == ["transformers", "lightning"]
    page = (root / "docs/watch.md").read_text().lower()
    assert all(f"{name} from {version} on" in page for name, version in pinned)


@pytest.mark.parametrize("callback", ["TrainerWatch", "LightningWatch"])
def test_callbacks_take_what_a_watch_takes(callback: str) -> None:
    pytest.importorskip({"TrainerWatch": "transformers", "LightningWatch": "lightning"}[callback])
    kind = getattr(ss, callback)
    assert [*inspect.signature(kind).parameters.values()] == [*inspect.signature(ss.watch).parameters.values()][1:]
    with pytest.raises(ss.InputError, match="every is 0"):
        kind(probe=IDS[:2], every=0)
    with pytest.raises(ss.InputError, match="unknown option 'evry': did you mean 'every'"):
        kind(probe=IDS[:2], evry=2)
    with pytest.raises(ss.InputError, match="probe must be given"):
        kind()
