"""The demonstration in docs/watch_demo.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import watch_demo

import scansnap as ss


def test_verses_repeat() -> None:
    """From the second verse on, each word is the one that followed the word before, and no word is twice in a verse."""
    for row in watch_demo.verses(200, torch.Generator().manual_seed(0)).tolist():
        length = next(i for i in range(1, watch_demo.LENGTH) if row[i] == row[0])
        assert watch_demo.VERSE[0] <= length <= watch_demo.VERSE[1]
        assert len(set(row[:length])) == length
        assert all(row[i] == row[i - length] for i in range(length, watch_demo.LENGTH))
    assert len(set(watch_demo.WORDS)) == 64


def test_a_short_demonstration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    store, page = tmp_path / "a.zarr", tmp_path / "page.html"
    words = f"watch_demo.py --steps 100 --every 50 --store {store} --page {page}"
    monkeypatch.setattr(sys, "argv", words.split())
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        try:
            watch_demo.main()
        finally:
            torch.set_num_threads(threads)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("step 100 of 100: loss 4.")
    assert last.startswith(f"page: {page}")
    assert "prefix_matching" in page.read_text()
    assert ss.load(store)["step"].values.tolist() == [0, 50, 100]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_induction_heads_form(seed: int) -> None:
    """As the documentation says, at other seeds too: half a minute each."""
    watch = watch_demo.train(steps=800, every=10, seed=seed)
    score = watch.dataset["prefix_matching"].values.max((1, 2))
    steps = watch.dataset["step"].values
    assert score[steps == 250].item() < 0.1
    assert score[steps == 600].item() > 0.8
    loss = watch.dataset["loss"]
    assert loss.sel(step=slice(200, 250)).mean() > 3.7
    assert loss.sel(step=slice(750, 800)).mean() < 1.9
    assert {verdict.name for verdict in watch.verdicts} >= {"induction-like"}
