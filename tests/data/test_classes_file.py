"""Classes files: read back unchanged, and refused with the reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

import scansnap as ss
from tests.strategies import sequence_classes

EXAMPLE = """
vocab_size = 7
token_names = ["the", "cat", "dog", "sat", "ran", "mat", "bone"]

[[class]]
query = "sat"
next_token = "mat"
tokens = ["the", "cat"]
probs = [0.5, 0.5]

[[class]]
query = 4
next_token = "bone"
tokens = [0, "dog"]
probs = [0.25, 0.75]
"""


def test_names_and_ids(tmp_path) -> None:
    path = tmp_path / "pets.toml"
    path.write_text(EXAMPLE)
    classes = ss.read_classes(path)
    assert classes.query.tolist() == [3, 4]
    assert classes.next_token.tolist() == [5, 6]
    assert classes.support(1).tolist() == [0, 2]
    assert classes.name(2) == "dog"


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@settings(max_examples=20)
@given(classes=sequence_classes())
def test_round_trip(tmp_path_factory, suffix: str, classes: ss.SequenceClasses) -> None:
    path = tmp_path_factory.mktemp("classes") / f"c{suffix}"
    assert ss.read_classes(ss.write_classes(classes, path)) == classes


def test_nothing_is_overwritten(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("precious")
    with pytest.raises(ss.InputError, match="exists already"):
        ss.write_classes(ss.syn_small(), path)
    assert path.read_text() == "precious"


GOOD = {"vocab_size": 4, "class": [{"query": 0, "next_token": 1, "tokens": [2, 3], "probs": [0.5, 0.5]}]}


def entry(**change) -> dict:
    return {**GOOD, "class": [{**GOOD["class"][0], **change}]}


BAD = [
    ({"vocab_size": 4}, "has no 'class'"),
    ({**GOOD, "clas": []}, "did you mean 'class'"),
    (entry(wieght=1), "did you mean 'weight'"),
    (entry(tokens=["x", 3]), "token 'x' is a name, but the file has no token_names"),
    ({**entry(tokens=["x", 3]), "token_names": ["x", "x", "y", "z"]}, r"no token_names \(or they repeat\)"),
    (entry(tokens=[2.5, 3]), "a token is 2.5"),
    (entry(tokens=[True, 3]), "a token is True: give an id"),
    (entry(tokens=7), "tokens of class 0 must be a list"),
    (entry(probs=[0.5, 0.4]), "sum to 0.9"),
    ({**GOOD, "class": []}, "one entry per sequence class"),
    ({**GOOD, "class": [1]}, "class 0 must hold the keys"),
    ([], "must hold the keys"),
    ({**GOOD, "class": [{**GOOD["class"][0], "weight": 1.0}, GOOD["class"][0]]}, "class 1 has no weight"),
    ({**GOOD, "token_names": [["a"], "b", "c", "d"]}, "token_names is"),
    ({**GOOD, "token_names": ["a", "b", "c", "d\0"]}, "without NUL"),
    ({**GOOD, "token_names": [None] * 4}, "token_names is"),
    ({**GOOD, "positions": 5}, "positions is 5: give the number of positions in each bucket"),
    ({**GOOD, "positions": [1, 2]}, "probs of class 0 must hold 2 lists, one for each entry of positions"),
    ({**entry(probs=[[0.5, 0.5]]), "positions": [1, 2]}, "probs of class 0 must hold 2 lists"),
    ({**GOOD, "vocab_size": 10**400}, "vocab_size is 1000"),
    (entry(probs=["0.5", "0.5"]), "cannot be read as an array of numbers"),
    (entry(probs=[True, False]), "cannot be read as an array of numbers"),
    (entry(probs=[[0.5, 0.5]]), r"probs of class 0 is \[\[0\.5, 0\.5\]\]: give one number for each of its tokens"),
    (entry(next_token=0), "give it a next token other than its query"),
    (entry(query=[1]), r"a token is \[1\]: give an id \(a whole number\) or a name"),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_refusals(tmp_path, content, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ss.InputError, match=message) as caught:
        ss.read_classes(path)
    assert str(path) in str(caught.value)


def test_unreadable_files(tmp_path) -> None:
    for name, content, message in [
        ("absent.toml", None, "No such file"),
        ("odd.yaml", b"", "ends in .toml or .json"),
        ("broken.toml", b"a = ", "not valid TOML"),
        ("broken.json", b"{", "not valid JSON"),
        ("binary.toml", b"\xff\xfe\x00", "not a text file"),
    ]:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ss.InputError, match=message):
            ss.read_classes(path)


def test_a_misspelt_name_is_corrected(tmp_path) -> None:
    path = tmp_path / "pets.toml"
    path.write_text(EXAMPLE.replace('"dog"]', '"dgo"]', 1).replace('tokens = [0, "dog"]', 'tokens = [0, "dgo"]'))
    with pytest.raises(ss.InputError, match="did you mean 'dog'"):
        ss.read_classes(path)
