"""`scansnap corpus` from the shell's side."""

from __future__ import annotations

import json

import pytest

from scansnap.data.named_classes import read_classes
from tests.cli.test_cli import printed, refusal, run

TEXT = "the cat by the gate purrs .\nthe dog by the wall barks .\n" * 30


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pets.txt").write_text(TEXT)
    (tmp_path / "more.txt").write_text(TEXT.replace("gate", "barn"))
    return tmp_path


def test_count_and_show(folder) -> None:
    """What the documents do not show: they have the sentences."""
    said = printed("corpus count pets.txt --window 8", cwd=folder)
    assert "pets all: 480 tokens of 11 types, each with the 7 tokens" in said
    said = refusal("corpus show counts", cwd=folder)
    assert "--query is missing: give a word of the text, such as the, ., by, barks, cat." in said
    shown = json.loads(printed("corpus show counts --query the --json", cwd=folder))
    assert shown["occurrences"] == 120
    assert {n["word"]: n["count"] for n in shown["following"]} == {"cat": 30, "dog": 30, "gate": 30, "wall": 30}
    dog = next(token for token in shown["distinct"] if token["next_word"] == "wall")
    assert dog["word"] == "dog"
    assert {"count", "share", "distinctness", "by_chance", "next_count", "next_share", "usual_share"} < set(dog)


def test_classes_are_written_to_a_file(folder) -> None:
    printed("corpus count pets.txt --window 8", cwd=folder)
    out = printed("corpus classes counts --queries the --next-tokens 2 --tokens 4", cwd=folder)
    assert "2 classes of 1 queries and 4 tokens: 1" in out
    classes = read_classes(folder / "classes.json")
    assert {classes.name(int(query)) for query in classes.query} == {"the"}
    out = printed("corpus classes counts --queries 1 --output more.toml --json", cwd=folder)
    assert json.loads(out)["kept"].keys() == {"occurrences", "contexts"}


def test_predictions_from_a_text_and_from_counts(folder) -> None:
    printed("corpus count pets.txt --window 8", cwd=folder)
    for source in ("pets.txt", "counts"):
        facts = json.loads(printed(f"corpus predict {source} --queries the,by --window 8 --json", cwd=folder))
        assert (facts["model"], list(facts["winners"])) == ("yz", ["the", "by"])
        assert {"token", "gain", "count"} == set(facts["winners"]["the"][0])
    out = printed("corpus predict pets.txt --queries 1 --top 3 --window 8 --control", cwd=folder)
    heading, *table = [line.split() for line in out.splitlines()[-4:]]
    assert heading == ["query", "token", "gain", "shuffled", "count"]
    assert (table[0][0], [len(row) for row in table]) == ("the", [5, 4, 4])
    words = "corpus predict pets.txt --queries 1 --window 8 --method population --lr-z 3 --steps 7"
    out = printed(words, cwd=folder)
    assert "after 7 updates at the rates η_Y = 30 and η_Z = 3." in out
    assert "says more" not in out


def test_a_prediction_is_compared_with_a_run(folder) -> None:
    people = [f"{name} met {friend} .\n" for name in "abcdefgh" for friend in "stuvwxyz"]
    (folder / "pets.txt").write_text("".join(people) * 4)
    printed("text train pets.txt --model yz --window 8 --batch-size 16 --steps 20 --store yz.zarr", cwd=folder)
    words = "--window 8 --compare yz.zarr"
    predicted = f"corpus predict pets.txt --method population --steps 20 --store p.zarr {words} --json"
    scores = json.loads(printed(predicted, cwd=folder))["compared"]
    assert (folder / "p.zarr").is_dir()
    assert list(scores) == ["prediction", "frequency", "cooccurrence", "pmi"]
    assert set(scores["prediction"]) == {"winners", "rank"}
    said = refusal(f"corpus predict more.txt {words}", cwd=folder)
    assert "holds no run of Y and Z on this text" in said
    said = refusal(f"corpus predict pets.txt --least 400 {words}", cwd=folder)
    assert "no query has more than 10 tokens that are ranked" in said


def test_prose_is_remarked_and_split(folder) -> None:
    (folder / "prose.txt").write_text("The cat, by the gate, purrs.\nThe dog barks!\n" * 30)
    done = run("corpus count prose.txt --output glued --split train", cwd=folder)
    doubt = "of the types end in a punctuation mark, as 'cat,': the tokenizer 'prose' splits such marks off"
    assert doubt in done.stderr
    assert "tokens are held out (valid) and not counted; --split all counts them" in done.stdout
    done = run("corpus count prose.txt --tokenizer prose", cwd=folder)
    assert ("held out" in done.stdout, done.stderr) == (False, "prose: 1 file read.\n")
    said = refusal("corpus count prose.txt", cwd=folder)
    assert "counts was counted with tokenizer = prose, not words: give that, or another output" in said
    said = refusal("corpus count prose.txt --tokenizer prose --min-count 40", cwd=folder)
    assert "or with another vocabulary (prose all): give --add" in said
    printed("corpus count prose.txt --add", cwd=folder)
    refusal("corpus count prose.txt --tokenizer words --add", cwd=folder)
    assert "'gate' occurs 30 times" in printed("corpus show counts --query gate", cwd=folder)
    (folder / "once.txt").write_text("the cat sleeps\n")
    printed("corpus count once.txt --output once", cwd=folder)
    shown = printed("corpus show once --query cat --least 1", cwd=folder)
    assert "'cat' occurs 1 time before" in shown
    assert "the           1 time (from 1 occurrence); then comes 'sleeps' 1 time, 100%" in shown


def test_more_text_is_added_and_the_same_text_is_not(folder) -> None:
    facts = [
        json.loads(printed(f"corpus count {text} --add --min-count 2 --json", cwd=folder))
        for text in ("pets.txt", "more.txt", "pets.txt")
    ]
    assert [len(fact["texts"]) for fact in facts] == [1, 2, 2]
    assert facts[1]["tokens"] == facts[2]["tokens"] > facts[0]["tokens"]
    assert facts[0]["vocab_size"] == facts[1]["vocab_size"]
    assert "'<unk>' occurs" in printed("corpus show counts --query '<unk>'", cwd=folder)  # barn is new
    (folder / "newest.txt").write_text("the lion roars .\n" * 3)
    said = printed("corpus count newest.txt --add", cwd=folder)
    assert "6 tokens of newest are not in the vocabulary" in said
