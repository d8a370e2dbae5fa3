"""`scansnap watch`."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from scansnap.cli.app import main
from scansnap.monitor.store import SnapshotStore, read_snapshots
from scansnap.monitor.verdict_rules import HEAD_VERDICTS
from tests.monitor.given_attention import first, missing, snapshot


@pytest.fixture
def command(monkeypatch):
    """Runs the program and gives its status."""

    def run(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["scansnap", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0)

    return run


@pytest.fixture
def store(tmp_path):
    snapshots = SnapshotStore(tmp_path / "a.zarr")
    for i in range(3):
        snapshots.append(snapshot(50 * i, np.broadcast_to(first(12, 0.9), (2, 2, 12, 12))))
    snapshots.close()
    return tmp_path / "a.zarr"


def test_show(command, store, capsys, tmp_path) -> None:
    """Once in the terminal, as a page, and as JSON with what is missing."""
    assert command("watch", "show", store, "--once", "--quantity", "first_token") == 0
    shown = capsys.readouterr().out
    assert "snapshot 3 at step 100" in shown
    assert "next at" not in shown
    assert "sink" in shown
    assert command("watch", "show", store, "--page", tmp_path / "page.html") == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 snapshots; heads by verdict: 4 sink; 4 sparse",
        "heads with an alarm: 0 of 4; heads on a single key: 0 of 4",
        f"page: {tmp_path / 'page.html'}   (open it in a browser)",
    ]
    assert "4 heads are <strong>sink</strong>" in (tmp_path / "page.html").read_text()
    snapshots = SnapshotStore(store)
    snapshots.append(missing(read_snapshots(store).load(), 150, "out of memory"))
    snapshots.close()
    assert command("watch", "show", store, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["steps"] == [0, 50, 100, 150]
    assert {verdict["name"] for verdict in facts["verdicts"]} >= {"sink"}
    assert (facts["missing"], facts["not_judged"]) == ([{"step": 150, "reason": "out of memory"}], {})


def test_show_ones_own_verdicts(command, store, capsys, tmp_path) -> None:
    (tmp_path / "mine.py").write_text(
        "import scansnap as ss\n"
        "@ss.HEAD_VERDICTS.register('eager')\n"
        "@ss.head_verdict('alarm', needs='first_token')\n"
        "def eager(head):\n"
        "    return head.as_long_as(head['first_token'] > 0.5, 'it is mine')\n"
    )
    try:
        words = ("watch", "show", store, "--from", tmp_path / "mine.py")
        assert command(*words, "--once") == 0
        assert "alarm: layer 0, both heads: eager since step 0: it is mine" in capsys.readouterr().out
        assert command(*words, "--page", tmp_path / "page.html") == 0
        assert "4 heads are <strong>eager</strong>" in (tmp_path / "page.html").read_text()
    finally:
        del HEAD_VERDICTS._makers["eager"]


def test_refusals(command, store, capsys, tmp_path) -> None:
    for words, sentence in (
        (["show", tmp_path / "none.zarr"], "does not exist"),
        (["show", store, "--refresh", "0"], "give a number of seconds above 0"),
        (["show", store, "--once", "--quantity", "entrophy"], "did you mean 'entropy'"),
    ):
        assert command("watch", *words) == 2
        assert sentence in capsys.readouterr().err


def test_a_short_demonstration(command, capsys, tmp_path) -> None:
    words = f"watch demo --steps 100 --every 50 --page {tmp_path / 'page.html'} --store {tmp_path / 'a.zarr'}".split()
    assert command(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 100 of 100: loss 4.")
    assert lines[1].startswith("no induction head has formed by step 100")
    assert lines[2].startswith("3 snapshots; heads by verdict: ")
    assert lines[5].startswith(f"snapshots: {tmp_path / 'a.zarr'}   (show them with scansnap watch show ")
    assert (tmp_path / "page.html").exists()
    assert command(*words) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_command_with_torch_ends_in_silence(tmp_path) -> None:
    """Its libraries report no leaks while Python shuts down."""
    words = [sys.executable, "-m", "scansnap", "watch", "demo", "--steps", "1", "--store", "a.zarr"]
    assert subprocess.run(words, capture_output=True, check=True, cwd=tmp_path).stderr == b""


def test_checkpoints(command, capsys, tmp_path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=256, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    )
    for step in (100, 200):
        model.save_pretrained(tmp_path / "run" / f"checkpoint-{step}")
    (tmp_path / "text.txt").write_text("a text that is read by the model at each of its checkpoints")
    capsys.readouterr()
    words = ("watch", "checkpoints", tmp_path / "run", "--probe", tmp_path / "text.txt")
    assert command(*words, "--page", tmp_path / "page.html") == 0
    shown = capsys.readouterr()
    assert "has no tokenizer: each byte" in shown.err
    assert shown.out.startswith("2 snapshots; heads by verdict: ")
    assert f"snapshots: {tmp_path / 'run-attention.zarr'}" in shown.out
    assert command(*words, "--json") == 0
    assert json.loads(capsys.readouterr().out)["steps"] == [100, 200]
    (tmp_path / "run-attention.zarr").rename(tmp_path / "all.zarr")
    one = ("watch", "checkpoints", tmp_path / "run" / "checkpoint-200", "--probe", tmp_path / "text.txt")
    assert command(*one) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 snapshot; heads by verdict: ")
    assert f"snapshots: {tmp_path / 'run-attention.zarr'}" in shown  # beside the folder of the series
    assert read_snapshots(tmp_path / "run-attention.zarr")["step"].values.tolist() == [200]
    assert command("watch", "checkpoints", tmp_path / "run", "--probe", tmp_path / "none.txt") == 2
    assert "cannot be read" in capsys.readouterr().err


def test_compare(command, store, tmp_path, capsys) -> None:
    """A run beside another whose second layer leaves it at step 100; by rates only if they are known."""
    other = SnapshotStore(tmp_path / "b.zarr")
    for i in range(5):
        weights = np.broadcast_to(first(12, 0.9), (2, 2, 12, 12)).copy()
        weights[1, 1] = first(12, 0.2 if i >= 4 else 0.9)
        other.append(snapshot(25 * i, weights))
    other.close()
    assert command("watch", "compare", store, tmp_path / "b.zarr") == 0
    assert capsys.readouterr().out.splitlines() == [
        "GPT, steps 0 to 100, and GPT, steps 0 to 100: compared at 3 snapshots of the first in normalized_entropy, "
        "top_1, first_token, previous_token, prefix_matching, learned_sink, largest_logit",
        "step 100: layer 1, head 1: normalized_entropy 0.24 and 0.95; top_1 0.92 and 0.35; first_token 0.92 and 0.35",
        "verdicts of the first run alone: sink (layer 1, head 1); sparse (layer 1, head 1)",
        "verdicts of the second run alone: none",
    ]
    assert command("watch", "compare", store, store) == 0
    last = capsys.readouterr().out.splitlines()[1]
    assert last == "no quantity differs by more than 0.1 and stays different until the last common snapshot"
    logits = SnapshotStore(tmp_path / "c.zarr")
    for i in range(3):  # from 25.6, a tenth of 256
        sizes = np.array([[1.0, 26.5], [27.0, 300.0 if i else 1.0]])
        logits.append(snapshot(50 * i, np.broadcast_to(first(12, 0.9), (2, 2, 12, 12)), logit=sizes))
    logits.close()
    assert command("watch", "compare", store, tmp_path / "c.zarr") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "step 0: layer 1, head 0: largest_logit 1.00 and 27.00",
        "step 50: layer 1, head 1: largest_logit 1.00 and 300.00",
        "verdicts of the first run alone: none",
        "verdicts of the second run alone: exploding-logits (layer 1, head 1)",
    ]
    small = SnapshotStore(tmp_path / "small.zarr")
    for i in range(5):
        small.append(snapshot(25 * i, np.stack([first(12, 0.9), first(12, 0.6)])[None]))
    small.close()
    assert command("watch", "compare", store, tmp_path / "small.zarr") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "layers x heads are 2 x 2 and 1 x 2: only means and extremes over all heads are compared",
        "step 0: mean of all heads: normalized_entropy 0.24 and 0.45; top_1 0.92 and 0.80; first_token 0.92 and 0.80",
        "step 0: largest of all heads: normalized_entropy 0.24 and 0.65",
        "step 0: smallest of all heads: top_1 0.92 and 0.68; first_token 0.92 and 0.68",
        "verdicts of the first run alone: none",
        "verdicts of the second run alone: none",
    ]
    assert command("watch", "compare", store, store, "--json") == 0
    assert json.loads(capsys.readouterr().out) == []
    assert command("watch", "compare", store, tmp_path / "b.zarr", "--by-rate") != 0
    assert "a run has no learning rates: watch it with optimizer=" in capsys.readouterr().err
