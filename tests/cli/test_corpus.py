"""`scansnap corpus` from the shell's side."""

from __future__ import annotations

import json

import pytest

from scansnap.data.named_classes import read_classes
from tests.cli.test_cli import run as run_program

TEXT = "the cat by the gate purrs .\nthe dog by the wall barks .\n" * 30


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pets.txt").write_text(TEXT)
    (tmp_path / "more.txt").write_text(TEXT.replace("gate", "barn"))

    def command(line: str) -> tuple[int, str, str]:
        done = run_program(line, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    return command


def test_count_and_show(run) -> None:
    """What the documents do not show: they have the sentences."""
    assert "pets all: 480 tokens of 11 types, each with the 7 tokens" in run("corpus count pets.txt --window 8")[1]
    assert (
        "--query is missing: give a word of the text, such as the, ., by, barks, cat." in run("corpus show counts")[2]
    )
    shown = json.loads(run("corpus show counts --query the --json")[1])
    assert shown["occurrences"] == 120
    assert {n["word"]: n["count"] for n in shown["following"]} == {"cat": 30, "dog": 30, "gate": 30, "wall": 30}
    dog = next(token for token in shown["distinct"] if token["next_word"] == "wall")
    assert dog["word"] == "dog"
    assert {"count", "share", "distinctness", "by_chance", "next_count", "next_share", "usual_share"} < set(dog)


def test_classes_are_written_to_a_file(run, tmp_path) -> None:
    run("corpus count pets.txt --window 8")
    code, out, _ = run("corpus classes counts --queries the --next-tokens 2 --tokens 4")
    assert code == 0
    assert "2 classes of 1 queries and 4 tokens: 1" in out
    classes = read_classes(tmp_path / "classes.json")
    assert {classes.name(int(query)) for query in classes.query} == {"the"}
    code, out, _ = run("corpus classes counts --queries 1 --output more.toml --json")
    assert json.loads(out)["kept"].keys() == {"occurrences", "contexts"}


def test_predictions_from_a_text_and_from_counts(run, tmp_path) -> None:
    run("corpus count pets.txt --window 8")
    for source in ("pets.txt", "counts"):
        code, out, _ = run(f"corpus predict {source} --queries the,by --window 8 --json")
        assert code == 0
        facts = json.loads(out)
        assert (facts["model"], list(facts["winners"])) == ("yz", ["the", "by"])
        assert {"token", "gain", "count"} == set(facts["winners"]["the"][0])
    out = run("corpus predict pets.txt --queries 1 --top 3 --window 8 --control")[1]
    heading, *table = [line.split() for line in out.splitlines()[-4:]]
    assert heading == ["query", "token", "gain", "shuffled", "count"]
    assert (table[0][0], [len(row) for row in table]) == ("the", [5, 4, 4])
    out = run("corpus predict pets.txt --queries 1 --window 8 --method population --lr-z 3 --steps 7")[1]
    assert "after 7 updates at the rates η_Y = 30 and η_Z = 3." in out
    assert "says more" not in out


def test_a_prediction_is_compared_with_a_run(run, tmp_path) -> None:
    people = [f"{name} met {friend} .\n" for name in "abcdefgh" for friend in "stuvwxyz"]
    (tmp_path / "pets.txt").write_text("".join(people) * 4)
    yz = "--model yz --window 8 --batch-size 16 --steps 20 --store yz.zarr"
    assert run(f"text train pets.txt {yz}")[0] == 0
    predicted = "corpus predict pets.txt --window 8 --method population --steps 20 --store p.zarr"
    scores = json.loads(run(f"{predicted} --compare yz.zarr --json")[1])["compared"]
    assert (tmp_path / "p.zarr").is_dir()
    assert list(scores) == ["prediction", "frequency", "cooccurrence", "pmi"]
    assert set(scores["prediction"]) == {"winners", "rank"}
    for words, message in (
        ("more.txt", "holds no run of Y and Z on this text"),
        ("pets.txt --least 400", "no query has more than 10 tokens that are ranked"),
    ):
        code, _, error = run(f"corpus predict {words} --window 8 --compare yz.zarr")
        assert code == 2
        assert message in error


def test_prose_is_remarked_and_split(run, tmp_path) -> None:
    (tmp_path / "prose.txt").write_text("The cat, by the gate, purrs.\nThe dog barks!\n" * 30)
    _, out, error = run("corpus count prose.txt --output glued --split train")
    assert (
        "of the types end in a punctuation mark, as 'cat,': the tokenizer 'prose' splits such marks off (--tokenizer"
        in error
    )
    assert "tokens are held out (valid) and not counted; --split all counts them" in out
    _, out, error = run("corpus count prose.txt --tokenizer prose")
    assert ("held out" in out, error) == (False, "prose: 1 file read.\n")
    again = [run(f"corpus count prose.txt {words}") for words in ("", "--tokenizer prose --min-count 40", "--add")]
    assert [code for code, _, _ in again] == [2, 2, 0]
    assert "counts was counted with tokenizer = prose, not words: give that, or another output" in again[0][2]
    assert "or with another vocabulary (prose all): give --add" in again[1][2]
    assert run("corpus count prose.txt --tokenizer words --add")[0] == 2
    assert "'gate' occurs 30 times" in run("corpus show counts --query gate")[1]
    (tmp_path / "once.txt").write_text("the cat sleeps\n")
    run("corpus count once.txt --output once")
    shown = run("corpus show once --query cat --least 1")[1]
    assert "'cat' occurs 1 time before" in shown
    assert "the          1 time (from 1 occurrence); then comes 'sleeps' 1 time, 100%" in shown


def test_more_text_is_added_and_the_same_text_is_not(run, tmp_path) -> None:
    facts = [
        json.loads(run(f"corpus count {text} --add --min-count 2 --json")[1])
        for text in ("pets.txt", "more.txt", "pets.txt")
    ]
    assert [len(fact["texts"]) for fact in facts] == [1, 2, 2]
    assert facts[1]["tokens"] == facts[2]["tokens"] > facts[0]["tokens"]
    assert facts[0]["vocab_size"] == facts[1]["vocab_size"]
    assert "'<unk>' occurs" in run("corpus show counts --query <unk>")[1]  # barn is new
    (tmp_path / "newest.txt").write_text("the lion roars .\n" * 3)
    assert "6 tokens of newest are not in the vocabulary" in run("corpus count newest.txt --add")[1]
