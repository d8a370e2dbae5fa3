"""`scansnap watch`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import scansnap as ss
from scansnap.monitor.store import SnapshotStore, read_snapshots
from scansnap.monitor.verdict_rules import HEAD_VERDICTS
from tests.cli.test_cli import printed, refusal, run
from tests.monitor.given_attention import first, missing, snapshot


@pytest.fixture
def store(tmp_path):
    snapshots = SnapshotStore(tmp_path / "a.zarr")
    for i in range(3):
        snapshots.append(snapshot(50 * i, np.broadcast_to(first(12, 0.9), (2, 2, 12, 12))))
    snapshots.close()
    return tmp_path / "a.zarr"


def test_show(store, tmp_path) -> None:
    """Once in the terminal, as a page, and as JSON with what is missing."""
    shown = printed("watch show a.zarr --once --quantity first_token", cwd=tmp_path)
    assert "snapshot 3 at step 100" in shown
    assert "next at" not in shown
    assert "sink" in shown
    assert printed("watch show a.zarr --page page.html", cwd=tmp_path).splitlines() == [
        "3 snapshots; heads by verdict: 4 sink; 4 sparse",
        "heads with an alarm: 0 of 4; heads on a single key: 0 of 4",
        "page: page.html   (open it in a browser)",
    ]
    assert "4 heads are <strong>sink</strong>" in (tmp_path / "page.html").read_text()
    snapshots = SnapshotStore(store)
    snapshots.append(missing(read_snapshots(store).load(), 150, "out of memory"))
    snapshots.close()
    facts = json.loads(printed("watch show a.zarr --json", cwd=tmp_path))
    assert facts["steps"] == [0, 50, 100, 150]
    assert {verdict["name"] for verdict in facts["verdicts"]} >= {"sink"}
    assert (facts["missing"], facts["not_judged"]) == ([{"step": 150, "reason": "out of memory"}], {})


@pytest.mark.usefixtures("store")
def test_show_ones_own_verdicts(tmp_path) -> None:
    (tmp_path / "mine.py").write_text(
        "import scansnap as ss\n"
        "@ss.HEAD_VERDICTS.register('eager')\n"
        "@ss.head_verdict('alarm', needs='first_token')\n"
        "def eager(head):\n"
        "    return head.as_long_as(head['first_token'] > 0.5, 'it is mine')\n"
    )
    try:
        said = printed("watch show a.zarr --from mine.py --once", cwd=tmp_path)
        assert "alarm: layer 0, both heads: eager since step 0: it is mine" in said
        printed("watch show a.zarr --from mine.py --page page.html", cwd=tmp_path)
        assert "4 heads are <strong>eager</strong>" in (tmp_path / "page.html").read_text()
    finally:
        del HEAD_VERDICTS._makers["eager"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("show none.zarr", "does not exist"),
        ("show a.zarr --refresh 0", "give a number of seconds above 0"),
        ("show a.zarr --once --quantity entrophy", "did you mean 'entropy'"),
        ("compare a.zarr a.zarr --by-rate", "a run has no learning rates: watch it with optimizer="),
        ("compare a.zarr a.zarr --tolerance -1", "--tolerance is -1.0: give a finite number of at least 0"),
        ("checkpoints . --probe none.txt --length 3", "--length is 3: give a whole number from 4"),
        ("checkpoints . --probe none.txt", "--probe is 'none.txt', which cannot be read"),
    ],
)
def test_refusals(tmp_path, words: str, sentence: str) -> None:
    assert sentence in refusal(f"watch {words}", cwd=tmp_path)


def test_a_command_with_torch_ends_in_silence(tmp_path) -> None:
    """Its libraries report no leaks while Python shuts down."""
    words = "-m scansnap train --preset syn-small --layers 2 --steps 1 --json"
    assert subprocess.run([sys.executable, *words.split()], capture_output=True, check=True, cwd=tmp_path).stderr == b""


def test_checkpoints(tmp_path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=256, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    )
    for step in (100, 200):
        model.save_pretrained(tmp_path / "run" / f"checkpoint-{step}")
    (tmp_path / "text.txt").write_text("a text that is read by the model at each of its checkpoints")
    shown = run("watch checkpoints run --probe text.txt --page page.html", cwd=tmp_path)
    assert "has no tokenizer: each byte" in shown.stderr
    assert shown.stdout.startswith("2 snapshots; heads by verdict: ")
    assert "snapshots: run-attention.zarr" in shown.stdout
    facts = json.loads(printed("watch checkpoints run --probe text.txt --json", cwd=tmp_path))
    assert facts["steps"] == [100, 200]
    (tmp_path / "run-attention.zarr").rename(tmp_path / "all.zarr")
    one = printed("watch checkpoints run/checkpoint-200 --probe text.txt", cwd=tmp_path)
    assert one.startswith("1 snapshot; heads by verdict: ")
    assert "snapshots: run-attention.zarr" in one  # beside the folder of the series
    assert read_snapshots(tmp_path / "run-attention.zarr")["step"].values.tolist() == [200]


def test_flags_of_checkpoints_reach_the_library(tmp_path, monkeypatch) -> None:
    (tmp_path / "run" / "step-1").mkdir(parents=True)
    (tmp_path / "run" / "step-1" / "config.json").write_text("{}")
    (tmp_path / "text.txt").write_text("a text")
    calls = []

    def take(*_: object, **options: object) -> None:
        calls.append({name: value for name, value in options.items() if not callable(value)})
        raise ss.InputError("taken")

    monkeypatch.setattr("scansnap.monitor.checkpoints.watch_checkpoints", take)
    words = "--windows 2 --length 5 --device cuda --allow-pickles --store s.zarr"
    assert "taken" in refusal(f"watch checkpoints run --probe text.txt {words}", cwd=tmp_path)
    given = {"windows": 2, "length": 5, "device": "cuda", "allow_pickles": True, "store": Path("s.zarr")}
    assert calls == [given]


@pytest.mark.usefixtures("store")
def test_compare(tmp_path) -> None:
    """A run beside another whose second layer leaves it at step 100."""
    other = SnapshotStore(tmp_path / "b.zarr")
    for i in range(5):
        weights = np.broadcast_to(first(12, 0.9), (2, 2, 12, 12)).copy()
        weights[1, 1] = first(12, 0.2 if i >= 4 else 0.9)
        other.append(snapshot(25 * i, weights))
    other.close()
    assert printed("watch compare a.zarr b.zarr", cwd=tmp_path).splitlines() == [
        "GPT, steps 0 to 100, and GPT, steps 0 to 100: compared at 3 snapshots of the first in normalized_entropy, "
        "top_1, first_token, previous_token, prefix_matching, learned_sink, largest_logit",
        "step 100: layer 1, head 1: normalized_entropy 0.24 and 0.95; top_1 0.92 and 0.35; first_token 0.92 and 0.35",
        "verdicts of the first run alone: sink (layer 1, head 1); sparse (layer 1, head 1)",
        "verdicts of the second run alone: none",
    ]
    within = printed("watch compare a.zarr b.zarr --tolerance 0.9", cwd=tmp_path).splitlines()[1]
    assert within.startswith("no quantity differs by more than 0.9 ")
    last = printed("watch compare a.zarr a.zarr", cwd=tmp_path).splitlines()[1]
    assert last == "no quantity differs by more than 0.1 and stays different until the last common snapshot"
    logits = SnapshotStore(tmp_path / "c.zarr")
    for i in range(3):  # from 25.6, a tenth of 256
        sizes = np.array([[1.0, 26.5], [27.0, 300.0 if i else 1.0]])
        logits.append(snapshot(50 * i, np.broadcast_to(first(12, 0.9), (2, 2, 12, 12)), logit=sizes))
    logits.close()
    assert printed("watch compare a.zarr c.zarr", cwd=tmp_path).splitlines()[1:] == [
        "step 0: layer 1, head 0: largest_logit 1.00 and 27.00",
        "step 50: layer 1, head 1: largest_logit 1.00 and 300.00",
        "verdicts of the first run alone: none",
        "verdicts of the second run alone: exploding-logits (layer 1, head 1)",
    ]
    small = SnapshotStore(tmp_path / "small.zarr")
    for i in range(5):
        small.append(snapshot(25 * i, np.stack([first(12, 0.9), first(12, 0.6)])[None]))
    small.close()
    assert printed("watch compare a.zarr small.zarr", cwd=tmp_path).splitlines()[1:] == [
        "layers x heads are 2 x 2 and 1 x 2: only means and extremes over all heads are compared",
        "step 0: mean of all heads: normalized_entropy 0.24 and 0.45; top_1 0.92 and 0.80; first_token 0.92 and 0.80",
        "step 0: largest of all heads: normalized_entropy 0.24 and 0.65",
        "step 0: smallest of all heads: top_1 0.92 and 0.68; first_token 0.92 and 0.68",
        "verdicts of the first run alone: none",
        "verdicts of the second run alone: none",
    ]
    assert json.loads(printed("watch compare a.zarr a.zarr --json", cwd=tmp_path)) == []
