"""`scansnap figure`, as a person or a script meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import scansnap as ss
from scansnap.figures import catalog
from scansnap.report.reproduce import NUM_SEEDS
from tests.cli.test_cli import printed


def test_a_figure_of_formulas(tmp_path) -> None:
    lines = printed("figure 8", cwd=tmp_path).splitlines()
    assert lines[2:6] == [
        "✓ h* is never below h.",
        "✓ The gap is at most 2η_Y/M.",
        "✓ The gap goes to zero.",
        "✓ Late the gap falls like 1/s, up to logarithms.",
    ]
    assert lines[-1] == "picture: results/figure_8.png, results/figure_8.pdf"
    assert (tmp_path / "results" / "figure_8.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_of_runs(tmp_path) -> None:
    facts = json.loads(printed("figure 6 --num-seeds 2 --json --store six.zarr --picture six.svg", cwd=tmp_path))
    assert facts["pictures"] == ["six.svg"]
    assert "<svg" in (tmp_path / "six.svg").read_text()
    stored = ss.load(tmp_path / facts["result"])
    assert stored.sizes["seed"] == 2
    assert facts["numbers"]["mean"]["values"] == stored["mean"].values.tolist()
    assert {"statement", "verdict", "holds", "p_value"} <= set(facts["trends"][0])


def test_a_figure_of_one_s_own(tmp_path) -> None:
    file = str(Path(__file__).parents[1] / "figures" / "own_figure.py")
    lines = printed("figure --details --from", file, "own", "--num-seeds", "3", cwd=tmp_path).splitlines()
    assert lines[:2] == ["Figure own: Loss of Syn-Small", "  The loss falls."]
    assert lines[3] == "✓ The loss falls."
    assert re.fullmatch(r"    holds: [\d.]+ ± [\d.]+, p below 0.001 \(expected: above 0\)", lines[4])
    assert lines[5].endswith("one-sided paired t test over 3 seeds, level 5%")
    assert (tmp_path / "results" / "figure_own.png").read_bytes().startswith(b"\x89PNG")


def test_flags_of_reproduce_reach_the_library(tmp_path, monkeypatch) -> None:
    calls = []

    def take(output: Path, **options: object) -> Path:
        calls.append((output, options))
        return output

    monkeypatch.setattr("scansnap.report.reproduce.reproduce", take)
    flags = "--output o --figures 3,8 --claims lemma_1 --num-seeds 5 --text example --device cuda"
    for words in (flags, ""):
        printed(f"reproduce {words}", cwd=tmp_path)
    given = {"figures": ["3", "8"], "claims": ["lemma_1"], "num_seeds": 5, "text": "example", "device": "cuda"}
    usual = {"figures": None, "claims": [], "num_seeds": NUM_SEEDS, "text": None, "device": "cpu"}
    assert calls == [(Path("o"), given), (Path("reproduction"), usual)]


def test_help_names_figures_that_exist(tmp_path) -> None:
    listed = printed("figure --help", cwd=tmp_path)
    assert all(name in listed for name in catalog.MODULES)
    example = re.search(r"Some figures, as ([\w,]+);", printed("reproduce --help", cwd=tmp_path))
    assert set(example.group(1).split(",")) <= set(catalog.MODULES)
