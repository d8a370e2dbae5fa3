"""`shortcuts` from end to end: copies, a second source, samples, tables, baselines, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import scansnap as ss
from scansnap.corpus.sources import Malformed, Row, RowReport
from scansnap.shortcuts.result import read_baseline, write_baseline
from scansnap.shortcuts.texts import near_copies, read_row
from tests.shortcuts.labeled_rows import Texts, rows

CONTENT = [
    *rows(1200, magic=(60, 1.0), common=(500, 0.75), weak=(60, 0.6)),
    *[{"text": "one text copied often", "label": "b"}] * 20,
    *[{"text": "One  TEXT copied often", "label": "b"}] * 20,
    *[{"text": "lost", "label": ""}] * 3,
]


def find(content: object, **options: object) -> ss.Shortcuts:
    return ss.shortcuts(content, text="text", label="label", progress=False, **options)  # type: ignore[arg-type]


def names(result: ss.Shortcuts) -> list[str]:
    return [finding.name for finding in result.shortcuts]


@pytest.fixture(scope="module")
def result() -> ss.Shortcuts:
    return find(CONTENT, accept=[("word", "common", "a")])


def test_planted_words_are_found_with_examples_and_others_are_not(result: ss.Shortcuts) -> None:
    assert {(finding.name, finding.label) for finding in result.shortcuts} == {("magic", "a"), ("common", "a")}
    magic, common = (next(f for f in result.findings if f.name == name) for name in ("magic", "common"))
    assert (magic.texts, magic.texts_with_label, magic.share, magic.reasons) == (60, 60, 1.0, ())
    assert magic.corrected_p < 1e-10
    assert len(magic.examples) == 3
    assert all(example.startswith("row ") and "magic" in example for example in magic.examples)
    assert (magic.accepted, common.accepted) == (False, True)
    assert result.labels["a"] + result.labels["b"] == result.num_rows == 1240
    # at the level 0.05, the control would find something once in 20 seeds; this seed is fixed
    assert result.control.beyond_chance_shuffled == 0
    assert result.control.looking > result.control.looking_shuffled
    assert result.report.sentences() == ["3 rows left out: no label (row 1,241; row 1,242; row 1,243)."]
    assert (magic.gain, magic.test) == (None, None)
    assert repr(result).startswith("<shortcuts: 2 shortcuts, ")


@pytest.mark.parametrize(("sign", "name"), [("magic", "magic"), ("www.x.org", "pattern: a URL")])
def test_an_example_shows_its_feature(sign: str, name: str) -> None:
    """In the middle of 1,000 characters."""
    content = [
        {**row, "text": row["text"] * 10 + (f" {sign} " if row["label"] == "a" else " w1 ") + row["text"] * 10}
        for row in rows(200)
    ]
    (finding,) = [finding for finding in find(content).shortcuts if finding.name == name]
    assert all(sign in example[:60] for example in finding.examples)


def test_copies_are_no_evidence(result: ss.Shortcuts) -> None:
    copied = next(finding for finding in result.findings if finding.name == "copied")
    assert (copied.texts, copied.verdict) == (1, "unproven")
    assert "copies" in copied.reasons
    assert (result.num_texts, result.num_tested_texts, result.num_ambiguous) == (1201, 1201, 0)


def test_verdicts_do_not_depend_on_the_order_of_rows_or_on_copies(result: ss.Shortcuts) -> None:
    """A text that is copied 3,000 times changes how frequent each label is, but nothing about the different texts."""
    plain = CONTENT[:1200]
    expected = names(find(plain))
    for other in (
        plain[::-1],
        sorted(plain, key=lambda row: row["label"]),
        [*plain, *[{**plain[0], "label": "a"}] * 3000],
        [*plain, *[row for row in plain if row["label"] == "a"] * 4],  # uneven copies
    ):
        assert sorted(names(find(other))) == sorted(expected)


def test_near_copies_are_grouped_and_unrelated_texts_are_not() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 1000, (40, 30))
    texts = [*base]
    for i in range(40):  # 20 near copies of two texts, and 20 texts with half of the words of another
        changed = base[i % 2 if i < 20 else i].copy()
        changed[rng.choice(30, 1 if i < 20 else 15, replace=False)] = rng.integers(1000, 2000, 1 if i < 20 else 15)
        texts.append(changed)
    group = near_copies(np.concatenate(texts).astype(np.int32), np.full(80, 30).cumsum(), np.arange(80))
    assert [group[40 + i] == group[i % 2] for i in range(20)] == [True] * 20
    assert len(np.unique(group)) == 60
    alone = near_copies(np.array([1, 2, 3], np.int32), np.array([1, 2, 3]), np.array([0, 1, 0]))
    assert (alone[0] == alone[2], alone[0] == alone[1]) == (True, False)


def test_a_second_source_confirms_and_shows_copies() -> None:
    train = rows(1200, 0, magic=(60, 1.0), early=(60, 1.0), fleeting=(60, 1.0))
    test = [
        *rows(600, 1, magic=(40, 1.0), early=(40, 0.5)),
        *train[:25],
        {**train[30], "text": train[30]["text"] + " !"},
    ]
    result = find(train, test=test)
    assert result.second is not None
    assert (result.second.rows, result.second.copied_texts) == (626, 26)
    assert len(result.second.examples) == 3
    said = {finding.name: finding.test for finding in result.shortcuts}
    assert said == {"magic": "holds", "early": "not confirmed", "fleeting": "not seen"}
    assert names(result) == names(find(train))
    assert {finding.test for finding in find(train, test=train).shortcuts} == {"not seen"}  # copies confirm nothing


def test_of_many_texts_some_are_drawn_whatever_their_order() -> None:
    content = rows(1200, magic=(200, 1.0))
    drawn = [find(data, texts=700) for data in (content, content[::-1])]
    assert drawn[0].drawn_share == 700 / 1200
    assert drawn[0].num_texts == 700
    assert [f.texts for f in drawn[0].findings] == [f.texts for f in drawn[1].findings]
    assert names(drawn[0]) == ["magic"]


def test_many_labels_and_few_texts() -> None:
    content = [{**row, "label": f"{row['label']}{i % 3}"} for i, row in enumerate(rows(1500))]
    for row in content[::9]:
        if row["label"] == "a0":
            row["text"] += " magic"
    result = find(content)
    assert [(finding.name, finding.label) for finding in result.shortcuts] == [("magic", "a0")]
    few = find([{"text": "x", "label": "a"}, {"text": "y", "label": "b"}], attention=True)
    assert few.findings == ()


def test_tables(result: ss.Shortcuts, tmp_path: Path) -> None:
    frame = result.to_pandas()
    assert frame["feature"].tolist() == [finding.feature for finding in result.findings]
    for name, read in (
        ("t.csv", lambda path: pd.read_csv(path, keep_default_na=False)),
        ("t.json", pd.read_json),
        ("t.parquet", pd.read_parquet),
    ):
        for _ in range(2):  # its own file is replaced
            result.write_table(tmp_path / name)
        assert read(tmp_path / name)["z"].tolist() == pytest.approx(frame["z"].tolist())
        (tmp_path / name).write_text("text,label\nmine,a\n")
        with pytest.raises(ss.StoreError, match="a file that scansnap did not write"):
            result.write_table(tmp_path / name)
    empty = replace(result, findings=())
    for name in ("e.csv", "e.json", "e.parquet"):
        for _ in range(2):
            empty.write_table(tmp_path / name)
    assert json.loads((tmp_path / "e.json").read_text()) == []
    with pytest.raises(ss.InputError, match="whose name ends in"):
        result.write_table(tmp_path / "words.txt")
    assert json.loads(json.dumps(result.plain(), allow_nan=False))["num_rows"] == 1240


def test_a_baseline_is_written_and_read(result: ss.Shortcuts, tmp_path: Path) -> None:
    write_baseline(tmp_path / "shortcuts.toml", result)
    accepted = read_baseline(tmp_path / "shortcuts.toml")
    assert set(accepted) == {("word", "magic", "a"), ("word", "common", "a")}
    assert all(finding.accepted for finding in find(CONTENT, accept=accepted).shortcuts)
    (tmp_path / "shortcuts.toml").write_text("[[allowed]]\n")
    for path, message in ((tmp_path / "shortcuts.toml", "no baseline: give"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(ss.InputError, match=message):
            read_baseline(path)


def test_what_becomes_of_rows() -> None:
    report = RowReport()
    used = [
        read_row(Row(str(i), values), report)
        for i, values in enumerate(
            [
                ("fine", " a "),
                (5, 1.0),
                (b"x", np.int64(3)),
                ("half \ud83d", True),
                ("", "a"),
                ("x", None),
                ("x", float("nan")),
                (["x"], "a"),
                ("x", {"y": 1}),
                Malformed("not CSV", 2),
            ]
        )
    ]
    assert used[:4] == [("fine", "a"), ("5", "1"), ("x", "3"), ("half ?", "true")]
    assert used[4:] == [None] * 6
    assert {reason: entry[0] for reason, entry in report.left_out.items()} == {
        "no text": 1,
        "no label": 2,
        "the text is a list or an object": 1,
        "the label is a list or an object": 1,
        "not CSV": 2,
    }
    assert (report.used, report.malformed, list(report.noted)) == (4, 2, ["the text is a number"])


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (rows(20), {"level": 0.9}, "level is 0.9: give a finite number from 1e-12 to 0.5"),
        (rows(20), {"lesat": 3}, "unknown option 'lesat': did you mean 'least'"),
        (rows(20), {"split": "train"}, "split is 'train' but the rows have no splits"),
        ([], {}, "has no rows"),
        (pd.Series(["x", "y"]), {}, "the rows are Series, without columns: give a table with text and label"),
        ([{"text": "x", "label": ""}], {}, "no row of a list can be used: 1 row left out: no label"),
        ([{"text": "x", "label": "a"}] * 3, {}, "have the same label, 'a'"),
        ([{"text": "x", "label": str(i)} for i in range(300)], {}, "more than 200 different values"),
        (
            [{"text": "x", "label": "ab"[i % 2]} for i in range(99)] + ["x"] * 2,
            {},
            "2 of 101 rows .* are malformed, .* repair or remove",
        ),
    ],
)
def test_refusals(content: Texts, options: dict[str, object], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.shortcuts(content, **{"text": "text", "label": "label", "progress": False, **options})  # type: ignore[arg-type]
