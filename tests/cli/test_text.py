"""`scansnap text`, as a person or a script meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.data.named_classes import read_classes
from tests.cli.test_cli import printed, refusal, run
from tests.small_text import small_corpus

SMALL = "--width 12 --feed-forward 8 --window 7 --batch-size 4 --lr-y 1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text").mkdir()
    small_corpus(tmp_path / "text")
    return tmp_path


def test_train_then_show(folder: Path) -> None:
    lines = printed(f"text train text --steps 12 --record-every 3 {SMALL}", cwd=folder).splitlines()
    assert lines[0].startswith("ok; step 12: loss ")
    assert "validation loss" in lines[0]
    assert lines[1].startswith("layer 0, head 0: entropy of attention 0.9")
    store = folder / lines[-1].split()[1]
    assert ss.load(store)["step"].values.tolist() == [0, 3, 6, 9, 12]
    assert (folder / lines[-2].split()[1]).read_bytes().startswith(b"\x89PNG")
    shown = printed(f"text show {store} --steps 0,12 --picture w.pdf", cwd=folder)
    assert shown.splitlines()[-1] == "picture: w.pdf   (steps 0, 12)"
    near = printed(f"text show {store} --steps 0,4,100", cwd=folder)
    assert near.endswith("-words.png   (steps 0, 3, 12: the nearest that were recorded)\n")
    assert (folder / "w.pdf").read_bytes().startswith(b"%PDF")
    own = printed(f"text show {store} --text 'the old dog dances'", cwd=folder)
    assert "1 of 4 words are unknown to the model" in own


def test_json_for_programs(folder: Path) -> None:
    words = f"text train text --steps 8 --record-every 1 --heads 2 {SMALL} --json --store r.zarr"
    result = json.loads(printed(words, cwd=folder))
    assert result["status"] == "ok"
    assert result["step"] == 8
    assert result["seconds"] > 0
    assert [(single["layer"], single["head"]) for single in result["heads"]] == [(0, 0), (0, 1)]
    assert result["valid_perplexity"] == pytest.approx(2.718281828 ** result["valid_loss"], rel=1e-6)
    assert json.loads(printed("text show r.zarr --json", cwd=folder))["heads"] == result["heads"]


def test_show_draws_the_layer_the_head_and_the_window_that_are_asked_for(folder: Path) -> None:
    shape = "--layers 2 --heads 2 --width 12 --feed-forward 8 --window 7 --batch-size 4 --lr-y 1"
    printed(f"text train text --steps 1 --record-every 1 {shape} --store r.zarr", cwd=folder)
    for own in ("", " --text 'the old cat'"):
        pictures = set()
        for flag in ("", "--layer 1", "--head 1", *(() if own else ("--window 1",))):
            printed(f"text show r.zarr{own} {flag} --picture drawn.png --overwrite", cwd=folder)
            pictures.add((folder / "drawn.png").read_bytes())
        assert len(pictures) == (3 if own else 4)


def test_an_environment_of_nonsense_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "abc")
    said = refusal(f"text train text --steps 1 {SMALL}", cwd=folder)
    assert "the environment's WORLD_SIZE is 'abc': it is a whole number under torchrun" in said


def test_show_refuses_what_is_no_text_result(folder: Path) -> None:
    printed("train --steps 2 --store s.zarr", cwd=folder)
    printed(f"text train text --steps 2 {SMALL} --store t.zarr", cwd=folder)
    for words, said in (
        ("s.zarr", "s.zarr does not hold a result of text training"),
        ("none.zarr", "none.zarr does not exist"),
        ("t.zarr --text 'the cat' --steps 0", "both --text and --steps are given"),
    ):
        assert said in refusal(f"text show {words}", cwd=folder)


def test_results_of_like_names_keep_what_is_theirs(folder: Path) -> None:
    for store in ("lr0.1", "lr0.1.zarr"):
        printed(f"text train text --steps 2 --record-every 1 {SMALL} --store {store}", cwd=folder)
    assert {path.name for path in folder.glob("lr*")} >= {"lr0.1.png", "lr0.1.model", "lr0.1.zarr.model"}


def test_a_run_that_diverges_says_what_to_do_and_leaves_no_model(folder: Path) -> None:
    """At its very end, and in place of a run that had left a model."""
    words = f"text train text --steps 1 --store a.zarr {SMALL}"
    printed(words, cwd=folder)
    assert (folder / "a.zarr.model").exists()
    shutil.rmtree(folder / "a.zarr")
    result = json.loads(printed(f"{words}e30 --clip none --json", cwd=folder))
    assert (result["status"], result["diverged_step"]) == ("diverged", 1)
    assert not (folder / "a.zarr.model").exists()
    assert "diverged at step 1: lower the learning rates, or clip" in printed(f"{words}e30 --clip none", cwd=folder)
    said = refusal("text show a.zarr --text 'the old cat'", cwd=folder)
    assert "a.zarr is diverged and has left no trained model" in said


PETS = "the cat by the gate purrs .\nthe dog by the wall barks .\n" * 30


def test_classes_are_written_to_a_file(folder: Path) -> None:
    (folder / "pets.txt").write_text(PETS)
    out = printed("text classes pets.txt --window 8 --queries the --next-tokens 2 --tokens 4", cwd=folder)
    assert "2 classes of 1 queries and 4 tokens: 12.5% of the text's pairs of a token and the next one, and " in out
    classes = read_classes(folder / "classes.json")
    assert [classes.name(int(query)) for query in classes.query] == ["the", "the"]
    assert [classes.name(int(token)) for token in classes.next_token] == ["cat", "dog"]
    printed("train --classes classes.json --lr-y 1 --lr-z 1 --steps 2 --store classes.zarr", cwd=folder)
    facts = json.loads(printed("text classes pets.txt --queries 1 --output more.toml --json", cwd=folder))
    assert (facts["classes"], facts["num_classes"], set(facts["kept"])) == ("more.toml", 4, {"occurrences", "contexts"})
    assert {read_classes(folder / "more.toml").name(int(query)) for query in classes.query}


def test_classes_of_a_split_and_of_the_whole_text(folder: Path) -> None:
    """By default nothing is held out."""
    (folder / "pets.txt").write_text(PETS + "the lion by the lake roars .\n")
    words = "text classes pets.txt --queries by --next-tokens 5 --tokens 50 --json"
    assert "lion" in (read_classes(folder / json.loads(printed(words, cwd=folder))["classes"]).token_names or ())
    path = json.loads(printed(f"{words} --split train --output t.json", cwd=folder))["classes"]
    assert "lion" not in (read_classes(folder / path).token_names or ())
    said = refusal("text classes pets.txt --split test", cwd=folder)
    assert "pets has no split 'test': choose one of train, valid, or 'all'" in said


def test_prose_is_remarked(folder: Path) -> None:
    (folder / "prose.txt").write_text("The cat, by the gate, purrs.\nThe dog barks!\n" * 30)
    doubt = "of the types end in a punctuation mark, as 'barks!': the tokenizer 'prose' splits such marks off"
    assert doubt in run("text classes prose.txt", cwd=folder).stderr
    again = run("text classes prose.txt --tokenizer prose --output prose.json", cwd=folder)
    assert (again.returncode, again.stderr) == (0, "prose: 1 file read.\n")
