"""No damage is read as data: every damaged store is refused in a sentence, or gives the numbers that were written."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.cli.app import main
from scansnap.dynamics import train as training
from scansnap.monitor.store import read_snapshots
from scansnap.results.store import RunStore
from scansnap.text.model_file import load_model, save_model
from tests.corpus.slow_counts import corpus_of, stored_tables, zipf_ids
from tests.faults.damage import identical, outcomes
from tests.monitor.test_store import looks, write
from tests.small_text import small_corpus

SMALL: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": 8, "seq_len": 16}
GRID = {**SMALL, "lr_y": [1.0, 2.0], "seeds": range(8), "steps": 4}


class Killed(BaseException):
    """Nothing catches it."""


def unfinished(path: Path, make: Callable[[], object], checkpoints: int) -> None:
    """Make a store and stop after so many checkpoints."""
    write_checkpoint, left = RunStore.write_checkpoint, [checkpoints]

    def dies(self, step, state):
        write_checkpoint(self, step, state)
        left[0] -= 1
        if not left[0]:
            self.unlock()
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunStore, "write_checkpoint", dies)
        patch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
        patch.setattr(training, "FIRST_PIECE", 1)
        patch.setattr("scansnap.dynamics.sweep.COMMIT_SECONDS", -1.0)
        with pytest.raises(Killed):
            make()


def cases(folder: Path) -> dict[str, tuple[Path, Callable[[Path], Any], Callable[[Any], bool]]]:
    """Of each kind of store: where it is, how it is used, and whether what comes out is right."""
    classes = ss.syn_small()

    def train(path: Path) -> Any:
        return ss.train(classes, **SMALL, steps=12, record_every=1, store=path)

    def sweep(path: Path) -> Any:
        return ss.sweep(classes, **GRID, shard_size=4, store=path)

    def flow(path: Path) -> Any:
        return ss.flow(classes, lr_y=1.0, lr_z=1.0, times=[1.0, 10.0], store=path)

    paths = {name: folder / name / "r.zarr" for name in ("train", "sweep", "flow", "train half", "sweep half", "looks")}
    unfinished(paths["train half"], lambda: train(paths["train half"]), 5)
    unfinished(paths["sweep half"], lambda: sweep(paths["sweep half"]), 2)
    result: dict[str, tuple[Path, Callable[[Path], Any], Callable[[Any], bool]]] = {}
    for name, make in (("train", train), ("sweep", sweep), ("flow", flow)):
        whole = make(paths[name])
        result[name] = paths[name], ss.load, identical(whole)
        if name != "flow":
            result[f"{name} half"] = paths[f"{name} half"], make, identical(whole)
    paths["looks"].parent.mkdir()
    write(paths["looks"], looks(5))
    result["looks"] = (
        paths["looks"],
        lambda path: read_snapshots(path).load(),
        identical(read_snapshots(paths["looks"])),
    )
    counts = folder / "counts" / "c"
    ss.count_corpus(corpus_of(9, train=zipf_ids(300, 9)), output=counts, window=4)
    expected = stored_tables(ss.read_counts(counts))

    def read(path: Path) -> Any:
        both = ss.read_counts(path)
        return stored_tables(both), both.vocabulary

    words = ss.read_counts(counts).vocabulary
    result["counts"] = counts, read, lambda seen: seen[0] == expected and words.equals(seen[1])
    model = folder / "model" / "m"
    transformer, tokenizer = small_model()
    save_model(transformer, tokenizer, model)
    weights = {name: value.numpy() for name, value in transformer.state_dict().items()}

    def same_weights(seen: Any) -> bool:
        return all(np.array_equal(value.numpy(), weights[name]) for name, value in seen[0].state_dict().items())

    result["model"] = model, load_model, same_weights
    return result


def small_model() -> Any:
    from scansnap.corpus.tokenizers import WordTokenizer
    from scansnap.text.options import TextShape
    from scansnap.text.transformer import TextTransformer

    tokenizer = WordTokenizer(["<unk>", "<eos>", "a", "b"])
    shape = TextShape(vocab_size=4, window=5, width=4, feed_forward=4)
    return TextTransformer(shape), tokenizer


def damage_all(folder: Path, count: int) -> Counter[str]:
    """So many damaged copies of every kind of store."""
    (folder / "copies").mkdir()
    total: Counter[str] = Counter()
    for name, (path, use, same) in cases(folder).items():
        for outcome, number in outcomes(path, use, same, count, folder / "copies").items():
            total[f"{outcome} ({name})" if outcome[:2].isupper() else outcome] += number
    return total


def test_damage_shows(tmp_path) -> None:
    seen = damage_all(tmp_path, 5)
    assert set(seen) <= {"refused", "the same numbers"}, seen
    assert seen["refused"] > 30


@pytest.mark.slow
def test_much_damage_shows(tmp_path, capsys) -> None:
    """80 of each of eight kinds of store; the numbers of a file of metadata are in two places, and one may do."""
    seen = damage_all(tmp_path, 80)
    with capsys.disabled():
        print(f"\n{sum(seen.values())} damaged stores: {dict(seen)}")
    assert set(seen) <= {"refused", "the same numbers"}, seen


def test_the_sentence_names_the_variable_and_what_is_intact_can_be_had(tmp_path) -> None:
    path = tmp_path / "s.zarr"
    whole = ss.sweep(ss.syn_small(), **{**GRID, "lr_z": [0.5, 1.0]}, shard_size=8, store=path).load()
    assert ss.check_store(path).is_intact
    chunks = sorted(file for file in (path / "loss" / "c").rglob("*") if file.is_file())
    assert len(chunks) > 1
    chunks[0].unlink()
    with pytest.raises(ss.StoreError, match=r"the file loss/c/[0-9/]+ of 'loss' is missing; scansnap check"):
        ss.load(path)
    with pytest.raises(ss.StoreError, match="'loss' is missing"):
        ss.sweep(ss.syn_small(), **{**GRID, "lr_z": [0.5, 1.0]}, shard_size=8, store=path)
    with pytest.warns(UserWarning, match="loss is not all there"):
        partial = ss.load(path, partial=True)
    kept = np.isfinite(partial["loss"].values)
    assert 0 < kept.sum() < kept.size
    assert np.array_equal(partial["loss"].values[kept], whole["loss"].values[kept])
    assert partial.drop_vars("loss").equals(whole.drop_vars("loss"))
    found = ss.check_store(path)
    assert [name for name, files in found.damaged.items() if files] == ["loss"]


def test_a_lazy_result_is_checked_when_it_is_read(tmp_path) -> None:
    path = tmp_path / "r.zarr"
    ss.train(ss.syn_small(), **SMALL, steps=4, store=path)
    (chunk,) = (file for file in (path / "loss" / "c").rglob("*") if file.is_file())
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    lazy = ss.load(path, lazy=True)
    lazy["accuracy"].load()
    with pytest.raises(ss.StoreError, match="of 'loss' has other bytes than were written"):
        lazy["loss"].load()


def test_a_store_of_before_is_read_and_says_so(tmp_path) -> None:
    result = ss.train(ss.syn_small(), **SMALL, steps=4).assign_attrs(format=1)
    result.to_zarr(tmp_path / "old.zarr", zarr_format=2, consolidated=True)
    with pytest.warns(UserWarning, match="was written by an earlier version, so damage would not be noticed"):
        assert ss.load(tmp_path / "old.zarr").identical(result)
    found = ss.check_store(tmp_path / "old.zarr")
    assert not found.has_checksums
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = ss.save(result, tmp_path / "new.zarr")
        assert ss.load(again).equals(result)


def test_the_checkpoint_of_another_run_is_refused(tmp_path) -> None:
    for name, rate in (("a", 1.0), ("b", 2.0)):
        options = {**SMALL, "lr_z": rate, "steps": 12, "store": tmp_path / f"{name}.zarr"}
        unfinished(tmp_path, lambda options=options: ss.train(ss.syn_small(), **options), 3)
    (tmp_path / "a.zarr" / ".checkpoint.npz").write_bytes((tmp_path / "b.zarr" / ".checkpoint.npz").read_bytes())
    with pytest.raises(ss.StoreError, match=r"the file \.checkpoint\.npz of the store has other bytes"):
        ss.train(ss.syn_small(), **SMALL, steps=12, store=tmp_path / "a.zarr")


def test_counts_and_models_are_checked_too(tmp_path) -> None:
    counts = tmp_path / "counts"
    ss.count_corpus(corpus_of(9, train=zipf_ids(300, 9)), output=counts, window=4)
    assert ss.check_store(counts).is_intact
    part = counts / "pairs" / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 3] ^= 8
    part.write_bytes(data)
    assert ss.check_store(counts).damaged["pairs"] == ["pairs/part-00000.parquet"]
    save_model(*small_model(), tmp_path / "model")
    assert ss.check_store(tmp_path / "model").is_intact
    weights = tmp_path / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 8
    weights.write_bytes(data)
    assert ss.check_store(tmp_path / "model").damaged["the store"] == ["model.safetensors"]
    with pytest.raises(ss.StoreError, match=r"model\.safetensors of the store has other bytes than were written"):
        load_model(tmp_path / "model")


def test_commands_that_show_refuse_damage(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text").mkdir()
    options = {"steps": 2, "width": 8, "feed_forward": 8, "window": 7, "batch_size": 4}
    ss.train_text(small_corpus(tmp_path / "text"), **options, store=tmp_path / "text.zarr")
    write(tmp_path / "watch.zarr", looks(3))
    ss.count_corpus(corpus_of(9, train=zipf_ids(300, 9)), output=tmp_path / "counts", window=4)
    for file, command in (
        ("text.zarr/entropy/c/0/0/0/0", "text show text.zarr"),
        ("watch.zarr/normalized_entropy/c/0/0/0", "watch show watch.zarr --once"),
        ("watch.zarr/normalized_entropy/c/0/0/0", "watch show watch.zarr --json"),
        ("counts/pairs/part-00000.parquet", "corpus show counts --query w3 --least 1"),
        ("text.zarr/entropy/c/0/0/0/0", "check text.zarr"),
    ):
        data = bytearray((tmp_path / file).read_bytes())
        if "check" not in command and "--json" not in command:
            data[len(data) // 3 if "counts" in file else 30] ^= 1
        (tmp_path / file).write_bytes(data)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["scansnap", *command.split()])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2, command
        said = capsys.readouterr().err
        assert "damaged" in said, command
        assert "Traceback" not in said
