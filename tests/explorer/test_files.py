"""What goes in and out of the explorer: presets, class files, sentences, commands and Python lines."""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import scansnap as ss
from scansnap.cli.app import app
from scansnap.data.named_classes import classes_from_mapping
from scansnap.explorer.page import NAMES, address_of
from tests.explorer.engine import ask, draw_classes, for_engine, needs_node, plain

pytestmark = needs_node

FILE = """
vocab_size = 7
token_names = ["the", "cat", "dog", "sat", "ran", "mat", "bone"]    # optional

[[class]]
query = "sat"                   # an id, or a name where names are given
next_token = "mat"
tokens = ["the", "cat"]
probs = [0.5, 0.5]
weight = 0.25

[[class]]
query = 4
next_token = 6
tokens = [0, "dog", 1]
probs = [0.5, 0.5, 0.0]
weight = 0.75
"""


def of_engine(classes: dict[str, Any]) -> ss.SequenceClasses:
    """Classes as the engine has them."""
    probs = np.zeros((len(classes["query"]), classes["vocabSize"]))
    probs[:, classes["tokens"]] = classes["probs"]
    return ss.SequenceClasses(
        probs=probs,
        query=classes["query"],
        next_token=classes["nextToken"],
        vocab_size=classes["vocabSize"],
        weights=classes["weights"],
        token_names=classes["tokenNames"],
    )


def test_presets_are_the_librarys() -> None:
    (presets,) = ask("presets", [{}])
    assert set(presets) == set(NAMES)
    for name, classes in presets.items():
        assert of_engine(classes) == ss.named_classes(name), name


def test_class_files_are_read_as_the_library_reads_them(tmp_path: Path) -> None:
    """TOML and JSON, by name and by id; and what the page writes, both give back unchanged."""
    rng = np.random.default_rng(6)
    texts = [FILE]
    for i in range(10):
        for suffix in (".toml", ".json"):
            path = ss.write_classes(draw_classes(rng), tmp_path / f"{i}{suffix}")
            texts.append(path.read_text())
    odd = ["<script>alert(1)</script>", 'a"b', "c\\d", "e\nf", "\x7f", "é\U0001f600"]
    named = ss.SequenceClasses(
        probs=[[0.5, 0.5, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0]],
        query=[3, 3],
        next_token=[4, 5],
        vocab_size=6,
        token_names=odd,
    )
    texts.append(ss.write_classes(named, tmp_path / "odd.toml").read_text())
    answers = ask("read", [{"text": text} for text in texts])
    again = ask("read", [{"text": answer["file"]} for answer in answers])
    for i, (text, answer, second) in enumerate(zip(texts, answers, again, strict=True)):
        path = tmp_path / f"given-{i}{'.json' if text.startswith('{') else '.toml'}"
        path.write_text(text)
        written = tmp_path / f"written-{i}.toml"
        written.write_text(answer["file"])
        library = ss.read_classes(path)
        for classes in (of_engine(answer["classes"]), of_engine(second["classes"]), ss.read_classes(written)):
            assert classes == library
            assert classes.token_names == library.token_names


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"vocab_size": 1.5}, "vocab_size is 1.5"),
    ({"vocab_size": 10**9}, "vocab_size is 1000000000"),
    ({"vocab_size": "7"}, "vocab_size is 7"),
    ({"class": []}, "class must be a list with one entry per sequence class"),
    ({"class": "all"}, "class must be a list"),
    ({"classes": 1}, "unknown key in the classes file 'classes'"),
    ({"positions": [1, 2]}, "depend on their position"),
    ({"token_names": ["a"]}, "unknown token name 'the'"),
    ({"token_names": 3}, "token_names must be a list"),
    ({"0.probs": [0.5, 0.6]}, "the probabilities of class 1 sum to 1.1, not 1"),
    ({"0.probs": [1.5, -0.5]}, "class 1 has the probability -0.5"),
    ({"0.probs": [1.0]}, "class 1 has 2 tokens but 1 probabilities"),
    ({"0.probs": ["a", "b"]}, "class 1 has a for a probability"),
    ({"0.tokens": [0, 0]}, "class 1 lists a token twice"),
    ({"0.tokens": [0, 9]}, "class 1 holds token 9: ids run from 0 to 6"),
    ({"0.tokens": ["the", "cow"]}, "'cow'"),
    ({"0.query": None}, "a token is null"),
    ({"0.query": -1}, "query holds token -1"),
    ({"0.next_token": 6, "0.query": 4}, "belongs to classes 1 and 2"),
    ({"0.query": "mat"}, "and predicts the same token: give it a next token other than its query."),
    ({"0.weight": 0}, "weights must be positive finite numbers"),
    ({"0.weight": None}, "no weight"),
    ({"0.colour": 1}, "unknown key in class 1 'colour'"),
]
GARBAGE = ("", "{", "[[class]", "vocab_size = ", "null", "[1]", "\x00\x01", "{}", "a = 1979-05-27", "[{}]", "1" * 10**6)
INFINITE = FILE.replace("vocab_size = 7", "vocab_size = inf")


def test_a_file_that_cannot_be_used_is_refused_in_a_sentence() -> None:
    """By the library too."""
    contents = []
    for change, _ in REFUSED:
        content = tomllib.loads(FILE)
        for key, value in change.items():
            place: dict[str, Any] = content["class"][0] if key.startswith("0.") else content
            place[key.removeprefix("0.")] = value
        if change == {"0.weight": None}:
            del content["class"][0]["weight"]
        contents.append(content)
        if "positions" not in change:
            with pytest.raises(ss.InputError):
                classes_from_mapping(content)
    texts = [*map(json.dumps, contents), *GARBAGE, INFINITE]
    sentences = [answer["refused"] for answer in ask("read", [{"text": text} for text in texts])]
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)
    for (_, expected), sentence in zip(REFUSED, sentences, strict=False):
        assert expected in sentence


def test_a_next_token_of_two_queries_is_for_the_library() -> None:
    (answer,) = ask("read", [{"text": FILE.replace('next_token = "mat"', 'next_token = "bone"')}])
    assert "train others with the library" in answer["refused"]
    pairs = ss.SequenceClasses(probs=[[0.5, 0.5, 0, 0]] * 2, query=[2, 3], next_token=[0, 0], vocab_size=4)
    with pytest.raises(ss.InputError, match="follows several queries"):
        address_of(pairs, {})


def test_sentences_become_classes() -> None:
    text = "Sports: The team won the game.\n\nfood: the soup won't cool\r\nsports: a game!\n"
    (answer,) = ask("sentences", [{"text": text}])
    classes = of_engine(answer["classes"])
    assert [classes.name(token) for token in classes.next_token] == ["sports", "food"]
    words = {classes.name(token): p for token, p in zip(classes.support(0), classes.support_probs(0), strict=True)}
    assert words == pytest.approx({"the": 2 / 7, "team": 1 / 7, "won": 1 / 7, "game": 2 / 7, "a": 1 / 7})
    assert [classes.name(token) for token in classes.support(1)] == ["the", "soup", "won't", "cool"]
    assert [classes.name(token) for token in classes.common_tokens] == ["the"]
    refused = ask("sentences", [{"text": text} for text in ("", "no label", ": x", "a: x", "a: !\nb: y", "a: x\nb:")])
    assert all(answer["refused"].endswith(".") for answer in refused)


def test_commands_and_python_lines_give_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is run, and its last attention logits compared with the engine's."""
    monkeypatch.chdir(tmp_path)
    own = draw_classes(np.random.default_rng(8))
    ss.write_classes(own, "my classes.toml")
    settings: list[tuple[str, Any, dict[str, Any]]] = [
        ("syn-small", ss.syn_small(), {"lr_y": 1.0, "lr_z": 1.0}),
        (
            "my classes.toml",
            own,
            {
                "lr_y": 0.1,
                "lr_z": 1e-7,
                "batch_size": 4,
                "seq_len": 9,
                "seeds": 2**53 - 1,
                "momentum": 0.9,
                "init": "uniform",
                "residual": True,
                "normalization": "layer",
                "decoder_gradient": "modified",
            },
        ),
        ("syn-medium-3", ss.syn_medium(), {"lr_y": 0.5, "lr_z": 0.1, "optimizer": "adam", "seq_len": 30}),
    ]
    cases = [{"classes": plain(c), "options": for_engine(**o), "steps": 300, "file": file} for file, c, o in settings]
    lines = ask("command", cases)
    frames = ask("train", [{**case, "steps": [300]} for case in cases])
    for i, (said, (frame,)) in enumerate(zip(lines, frames, strict=True)):
        program, *words = shlex.split(said["command"])
        assert program == "scansnap"
        outcome = CliRunner().invoke(app, [*words, "--store", f"{i}.zarr", "--json"])
        assert outcome.exit_code == 0, outcome.output
        names: dict[str, Any] = {}
        exec(said["python"], names)
        expected = np.array(frame["attentionLogits"])
        for result in (ss.load(f"{i}.zarr"), names["result"]):
            logits = result["attention_logits"].isel(step=-1).values.ravel()
            np.testing.assert_allclose(expected, logits, rtol=0, atol=1e-9 * np.abs(logits).max())


REFUSED_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"lr_y": -1.0}, "lr_y is -1: give a finite learning rate of at least 0."),
    ({"lr_z": "fast"}, "lr_z is fast"),
    ({"batch_size": 0}, "batch_size is 0"),
    ({"seq_len": 1}, "seq_len is 1"),
    ({"seq_len": 1000, "batch_size": 10**6}, "tokens are allowed here"),
    ({"seeds": 2.5}, "seed is 2.5"),
    ({"optimizer": "lion"}, "optimizer is 'lion': give one of sgd, adam, sign_sgd, normalized_sgd."),
    ({"momentum": 1.0}, "momentum is 1"),
    ({"momentum": 0.9, "optimizer": "adam"}, "momentum belongs to sgd"),
    ({"normalization": "batch"}, "normalization is 'batch'"),
    ({"init": "random"}, "init is 'random'"),
    ({"residual": "yes"}, "residual is yes"),
]


def test_options_that_cannot_be_used_are_refused_in_a_sentence() -> None:
    small, large = plain(ss.syn_small()), plain(ss.single_common(vocab_size=10**6))
    cases = [{"classes": small, "options": for_engine(**options)} for options, _ in REFUSED_OPTIONS]
    cases.append({"classes": large, "options": for_engine(init="uniform", seq_len=math.inf)})
    answers = ask("refuse", cases)
    for (_, sentence), answer in zip([*REFUSED_OPTIONS, ({}, "start from zeros")], answers, strict=True):
        assert sentence in answer["refused"]
