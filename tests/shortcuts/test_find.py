"""`shortcuts` from end to end: what is planted is found, what is chance is called so."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss
from tests.shortcuts.labelled_rows import rows

CONTENT = [
    *rows(1200, magic=(60, 1.0), common=(500, 0.75), weak=(60, 0.6)),
    *[{"text": "one text copied often", "label": "b"}] * 40,
    *[{"text": "lost", "label": ""}] * 3,
]


@pytest.fixture(scope="module")
def result() -> ss.Shortcuts:
    return ss.shortcuts(CONTENT, text="text", label="label", allow=["Common"], updates=1500, vocabulary=150)


def test_planted_words_are_found_and_others_are_not(result: ss.Shortcuts) -> None:
    assert {(finding.word, finding.label) for finding in result.shortcuts} == {("magic", "a"), ("common", "a")}
    magic = next(finding for finding in result.findings if finding.word == "magic")
    assert (magic.texts, magic.texts_with_label, magic.share, magic.reasons) == (60, 60, 1.0, ())
    assert magic.stability == 1
    assert magic.held_out_share == 1
    assert magic.corrected_p < 1e-10
    assert magic.rows_to_tell is None
    assert [finding.allowed for finding in result.shortcuts if finding.word == "common"] == [True]
    assert result.labels["a"] + result.labels["b"] == result.num_rows == 1240
    # at the level 0.05, the control would find something once in 20 seeds; this seed is fixed
    assert result.control.beyond_chance >= 6  # also the words of the copied text
    assert result.control.beyond_chance_shuffled == 0
    assert result.control.looking > result.control.looking_shuffled
    assert result.remarks.num_left_out == 3


def test_a_copied_text_is_no_evidence(result: ss.Shortcuts) -> None:
    copied = next(finding for finding in result.findings if finding.word == "copied")
    assert copied.corrected_p < 1e-5  # which is what copies do to a test
    assert {"copies", "unstable"} <= set(copied.reasons)
    assert (copied.texts, copied.different_texts) == (40, 1)
    assert (result.num_texts, result.num_ambiguous) == (1201, 0)
    assert all("copies" not in finding.reasons for finding in result.findings if finding.different_texts > 10)
    assert copied.verdict == "unproven"


def test_attention_picks_the_pure_word(result: ss.Shortcuts) -> None:
    magic = next(finding for finding in result.findings if finding.word == "magic")
    assert magic.picked_at is not None
    assert magic.population_picked_at is not None
    assert [outcome.name for outcome in result.outcomes] == [
        "as it is",
        "a prior of -4 on shortcut words",
        "a prior of -4 on unproven words",
        "half of the texts",
        "a quarter of the texts",
    ]
    as_it_is, held_back = result.outcomes[:2]
    assert held_back.on_shortcuts < as_it_is.on_shortcuts
    assert held_back.accuracy < as_it_is.accuracy
    assert 0.01 < as_it_is.accuracy_error < 0.04  # of some 300 held-out texts
    assert result.curves is not None
    assert len(result.curves.gains[0]) == len(result.curves.updates)


def test_more_rows_make_fewer_words_look_distinct_by_chance(result: ss.Shortcuts) -> None:
    sizes, shares = zip(*result.chance_share.items(), strict=True)
    assert sizes == (310, 1240, 4960, 19840)
    assert (np.diff(shares) < 0).all()
    waiting = [finding for finding in result.unproven if finding.rows_to_tell is not None]
    assert waiting
    assert all(finding.rows_to_tell > result.num_rows for finding in waiting if finding.z < 3)


def test_counting_alone_gives_the_same_verdicts(result: ss.Shortcuts) -> None:
    alone = ss.shortcuts(CONTENT, text="text", label="label", attention=False)
    verdicts = [[(finding.word, finding.verdict) for finding in found.findings] for found in (alone, result)]
    assert verdicts[0] == verdicts[1]
    assert (alone.outcomes, alone.findings[0].gain) == ((), None)


def test_many_labels_and_few_texts() -> None:
    content = [{**row, "label": f"{row['label']}{i % 3}"} for i, row in enumerate(rows(1500))]
    for row in content[::9]:
        if row["label"] == "a0":
            row["text"] += " magic"
    result = ss.shortcuts(content, text="text", label="label", updates=50, vocabulary=60)
    assert [(finding.word, finding.label) for finding in result.shortcuts] == [("magic", "a0")]
    assert len(result.labels) == 6
    few = ss.shortcuts([{"text": "x", "label": "a"}, {"text": "y", "label": "b"}], text="text", label="label")
    assert (few.findings, few.outcomes, few.num_tested) == ((), (), 0)


def test_tables(result: ss.Shortcuts, tmp_path: Path) -> None:
    result.write_table(tmp_path / "words.csv")
    with (tmp_path / "words.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["word"] for row in table] == [finding.word for finding in result.findings]
    assert table[0]["verdict"] == "shortcut"
    result.write_table(tmp_path / "words.json")
    assert json.loads((tmp_path / "words.json").read_text())[0]["z"] == result.findings[0].z
    parquet = pytest.importorskip("pyarrow.parquet")
    result.write_table(tmp_path / "words.parquet")
    read = parquet.read_table(tmp_path / "words.parquet").to_pylist()
    assert [row["picked_at"] for row in read] == [finding.picked_at for finding in result.findings]
    with pytest.raises(ss.InputError, match="whose name ends in"):
        result.write_table(tmp_path / "words.txt")
    assert json.dumps(result.plain(), allow_nan=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0.9}, "level is 0.9: give a finite number from 1e-12 to 0.5"),
        ({"least": 1}, "least is 1"),
        ({"allow": "word"}, "allow is 'word': give a list of text"),
        ({"text": ""}, "text is '': give the name of a column"),
        ({"lesat": 3}, "unknown option 'lesat': did you mean 'least'"),
        ({"split": "train"}, "split is 'train' but the rows have no splits"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.shortcuts(rows(20), **{"text": "text", "label": "label", **options})
