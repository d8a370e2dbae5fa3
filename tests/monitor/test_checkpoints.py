"""A series of saved checkpoints: the snapshots that a watch of the training would have made."""

from __future__ import annotations

import errno
import json

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.monitor.checkpoints import find_checkpoints, watch_checkpoints
from scansnap.storage.folder import CheckedFolder

pytest.importorskip("transformers", reason="transformers is not installed")

TEXT = "the cat sat on the mat and the dog sat on the cat and all the mats were sat on by cats and dogs, all day long"


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    """Three checkpoints of a small GPT-2 over the vocabulary of bytes, with what a watch saw while they were made."""
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("series")
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    ids = torch.tensor(list(TEXT.encode()))[:96].reshape(3, 32)
    watch = ss.watch(model, probe={"input_ids": ids}, every=5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    model.save_pretrained(folder / "checkpoint-0")
    for step in range(1, 11):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        watch.step()
        if step % 5 == 0:
            model.save_pretrained(folder / f"checkpoint-{step}")
    return folder, watch.dataset


def test_the_same_snapshots_as_in_training(series, tmp_path) -> None:
    folder, seen = series
    said: list[str] = []
    done: list[tuple[int, int, int]] = []
    snapshots = watch_checkpoints(
        folder, TEXT, store=tmp_path / "a.zarr", on_note=said.append, on_checkpoint=lambda *where: done.append(where)
    )
    assert done == [(1, 3, 0), (2, 3, 5), (3, 3, 10)]
    assert said == [f"{folder} has no tokenizer: each byte of the text stands for the token of its number."]
    assert snapshots["step"].values.tolist() == [0, 5, 10]
    assert snapshots["token"].values.tolist() == list(TEXT[:32])
    for name in ("entropy", "first_token", "prefix_matching", "moved", "pattern"):
        assert np.allclose(snapshots[name], seen[name], atol=1e-6, equal_nan=True), name


def test_later_checkpoints_are_added(series, tmp_path) -> None:
    """A store goes on with the checkpoints that came since."""
    folder, _ = series
    hidden = (folder / "checkpoint-10").rename(tmp_path / "checkpoint-10")
    try:
        watch_checkpoints(folder, TEXT, store=tmp_path / "a.zarr")
    finally:
        hidden.rename(folder / "checkpoint-10")
    for _ in range(2):  # the second time nothing is left to do
        snapshots = watch_checkpoints(folder, TEXT, store=tmp_path / "a.zarr")
        assert snapshots["step"].values.tolist() == [0, 5, 10]
        assert not snapshots["entropy"].isnull().any()


def test_a_disk_that_is_full_at_the_first_snapshot_leaves_nothing(series, tmp_path, monkeypatch) -> None:
    folder, _ = series

    def full(self: CheckedFolder) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CheckedFolder, "commit", full)
        with pytest.raises(ss.StoreError, match="No space left"):
            watch_checkpoints(folder, TEXT, store=tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()
    assert watch_checkpoints(folder, TEXT, store=tmp_path / "a.zarr")["step"].values.tolist() == [0, 5, 10]


def test_a_tokenizer_that_cannot_be_loaded_is_said(series, tmp_path) -> None:
    folder, _ = series
    (tmp_path / "step-5").symlink_to(folder / "checkpoint-5")
    (tmp_path / "tokenizer.json").write_text("no tokenizer")
    said: list[str] = []
    watch_checkpoints(tmp_path, TEXT, on_note=said.append)
    assert said[0].startswith(f"the tokenizer in {tmp_path} cannot be loaded (")
    assert said[0].endswith("): each byte of the text stands for the token of its number.")


def test_its_own_tokenizer_is_used(series, tmp_path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder, _ = series
    words = {word: i for i, word in enumerate(sorted({*TEXT.replace(",", " ,").split(), "[UNK]"}))}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "step-5").symlink_to(folder / "checkpoint-5")
    PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]").save_pretrained(tmp_path / "run")
    said: list[str] = []
    snapshots = watch_checkpoints(tmp_path / "run", TEXT, on_note=said.append)
    assert said == []
    assert snapshots["token"].values.tolist()[:4] == ["the", "cat", "sat", "on"]


def test_refusals(series, tmp_path) -> None:
    folder, _ = series
    with pytest.raises(ss.InputError, match="is not a folder"):
        watch_checkpoints(tmp_path / "none", TEXT)
    with pytest.raises(ss.InputError, match="holds no checkpoints"):
        watch_checkpoints(tmp_path, TEXT)
    with pytest.raises(ss.InputError, match="the probe has 2 tokens"):
        watch_checkpoints(folder, "ab")
    for name in ("a-5", "b-5"):
        (tmp_path / "twice" / name).mkdir(parents=True)
        (tmp_path / "twice" / name / "config.json").write_text("{}")
    with pytest.raises(ss.InputError, match="a-5 and b-5 are both of step 5"):
        find_checkpoints(tmp_path / "twice")
    with pytest.raises(ss.InputError, match="has no weights"):
        watch_checkpoints(tmp_path / "twice" / "a-5", TEXT)


def test_nothing_of_a_checkpoint_is_run(series, tmp_path) -> None:
    """Neither a pickle nor code of its own; pickles only if that is allowed."""
    folder, seen = series
    run = tmp_path / "run" / "checkpoint-10"
    run.mkdir(parents=True)
    config = json.loads((folder / "checkpoint-10" / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config))
    from safetensors.torch import load_file

    torch.save(load_file(folder / "checkpoint-10" / "model.safetensors"), run / "pytorch_model.bin")
    with pytest.raises(ss.InputError, match="its weights are a pickle, which can run any code"):
        watch_checkpoints(tmp_path / "run", TEXT)
    snapshots = watch_checkpoints(tmp_path / "run", TEXT, allow_pickles=True)
    assert np.allclose(snapshots["entropy"][0], seen["entropy"][-1], atol=1e-6)

    (run / "model.safetensors").write_bytes((folder / "checkpoint-10" / "model.safetensors").read_bytes())
    trap = {
        **config,
        "model_type": "mine",
        "architectures": ["Mine"],
        "auto_map": {"AutoConfig": "trap.Config", "AutoModel": "trap.Mine"},
    }
    (run / "config.json").write_text(json.dumps(trap))
    (run / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    with pytest.raises(ss.InputError, match="whose own code is all that is run"):
        watch_checkpoints(tmp_path / "run", TEXT)
    assert not (tmp_path / "sprung").exists()
