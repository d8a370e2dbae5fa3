"""Papers of other distributions: all commands find an installed one, and a broken one breaks nothing.

`tests/external_paper` is a distribution of its own, which is installed here as a user would install it.  Commands run
in a process that sees it, one after another.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "tests" / "external_paper"

RUN = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
import importlib.metadata

reads, entry_points = [], importlib.metadata.entry_points
def counted(**wanted):
    reads.append(wanted.get("group"))
    return entry_points(**wanted)
importlib.metadata.entry_points = counted

from scansnap.cli.app import main
for line in sys.stdin:
    out, err, status = io.StringIO(), io.StringIO(), 0
    sys.argv = ["scansnap", *json.loads(line)]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            status = stop.code or 0
    print(json.dumps([status, out.getvalue(), err.getvalue(), reads.count("scansnap.papers")]))
"""


VERIFY = "verify --system linear-attention --json"


@dataclass
class Printed:
    """What a command printed, and how often entry points of papers had been read when it ended."""

    status: int
    out: str
    err: str
    reads: int


def run_commands(*lines: str, path: Path, cwd: Path) -> list[Printed]:
    """Run commands in one process with the distributions in `path`."""
    words = "".join(json.dumps(line.split()) + "\n" for line in lines)
    environment = {**os.environ, "PYTHONPATH": str(path), "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=words, cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [Printed(*json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip installed the external paper."""
    source, target = tmp_path_factory.mktemp("source") / "paper", tmp_path_factory.mktemp("installed")
    shutil.copytree(PAPER, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(target), str(source)], check=True
    )
    return target


def test_the_external_paper_is_small() -> None:
    files = [PAPER / "pyproject.toml", *(PAPER / "stairs").glob("*.py")]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 210


def test_every_command_finds_an_installed_paper(installed: Path, tmp_path: Path) -> None:
    """Those of docs/extending.md, and some more."""
    outputs = {
        VERIFY: "stairs_one_plateau_each",
        "systems": "linear-attention   Linear attention learns regression in context",
        "systems linear-attention": "one-fall: all modes are learned at once",
        "train --preset one-fall": "loss 0.9375 → 0.1512",
        "train --system linear-attention --set keys=merged --set lr=0.2 --steps 400": "loss 0.9375 → 0.1263",
        "flow --system linear-attention --set lr=1 --times log:1:1e5:51": "loss 0.9375 → 0.1206",
        "sweep --system linear-attention --set lr=0.1,0.5 --steps 2000": "0.5              1          0.261",
        "verify stairs_one_fall": "stairs_one_fall (Zhang et al., ICML 2025): holds",
        "figure stairs": "✓ Separate heads wait on plateaus.",
        "reproduce --figures stairs --claims stairs_one_fall": "page: reproduction/index.html",
    }
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").split("## A paper of your own")[1]
    shown = page.split("```sh\n")[1].split("```")[0].splitlines()
    assert {line.removeprefix("scansnap ") for line in shown} <= {*outputs, VERIFY.removesuffix(" --json")}
    found = dict(zip(outputs, run_commands(*outputs, path=installed, cwd=tmp_path), strict=True))
    for line, expected in outputs.items():
        assert found[line].status == 0, (line, found[line].err)
        assert expected in found[line].out, line
    assert "one-fall" in found["systems"].out
    assert "stairs_one_fall" in (tmp_path / "reproduction" / "index.html").read_text(encoding="utf-8")
    assert (tmp_path / "results" / "figure_stairs.png").stat().st_size > 10_000
    rows = json.loads(found[VERIFY].out)
    claims = ["stairs_population_loss", "stairs_one_plateau_each", "stairs_one_fall"]
    general = ["linear_attention_gradient", "linear_attention_balance"]
    assert {row["id"]: row["verdict"] for row in rows} == dict.fromkeys([*general, *claims], "holds")
    for row in rows:
        if row["id"] in claims:
            assert all(measurement["notices"] for measurement in row["measurements"]), row["id"]


CHANGED = """
import scansnap as ss
from stairs import LinearAttention, claims, system, theory

moment = theory.moment
theory.moment = system.moment = lambda covariance, pairs: moment(covariance, pairs + 1)  # 1/(N + 1)
print(claims.stairs_population_loss.run().verdict)
theory.moment = system.moment = moment

levels = claims.plateaus
claims.plateaus = lambda covariance, pairs: levels(covariance, pairs) + 0.01 * (covariance.sum() > 0)
print(claims.stairs_one_plateau_each.run().verdict)
claims.plateaus = levels

data = LinearAttention.data
LinearAttention.data = lambda self, seeds, step: {"covariance": data(self, seeds, step)["covariance"] * 0 + 1}
print(claims.stairs_one_fall.run().verdict)
LinearAttention.data = data

from _site.public import paper_systems
print(*[path for paths in paper_systems().values() for path in paths])
"""


def test_its_claims_can_fail_and_the_reference_has_its_class(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT / "docs")])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHANGED], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert lines[:-1] == ["fails"] * 3, done.stderr
    assert {"scansnap.papers.joma.JoMA", "stairs.LinearAttention"} < set(lines[-1].split())


def test_entry_points_are_read_only_where_they_are_needed(installed: Path, tmp_path: Path) -> None:
    """Not by help, nor for the names of this package, nor by what shows the paper's figures and claims."""
    without = (
        "--help",
        "train --help",
        "verify --help",
        "figure --help",
        "train --preset syn-small --steps 2",
        "train --classes syn-small --lr-y 1 --lr-z 1 --steps 2",
        "train --system sinks --lr-alpha 1 --lr-beta 1 --steps 2",
        "train --preset next-token --steps 2",
        "verify lemma_6",
        "verify one_hot_gaps",
        "figure 8",
    )
    found = run_commands(*without, "systems", "systems", path=installed, cwd=tmp_path)
    assert [each.status for each in found] == [0] * len(found), [each.err for each in found]
    assert {line: each.reads for line, each in zip(without, found, strict=False) if each.reads} == {}
    assert [each.reads for each in found[-2:]] == [1, 1]


CALLS = """
import importlib.metadata

reads, entry_points = [], importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **wanted: reads.append(wanted.get("group")) or entry_points(**wanted)

import scansnap as ss
from scansnap.claims.verify import select

options = {"steps": 2, "progress": False}
ss.train("syn-small", lr_y=1.0, lr_z=1.0, **options)
ss.train("joma", lr_v=1.0, lr_z=1.0, **options)
all_claims = [claim.id for claim in select()]
print(reads.count("scansnap.papers"))
print(ss.train("linear-attention", lr=1.0, **options).sizes["step"], "linear-attention" in list(ss.SYSTEMS))
print(reads.count("scansnap.papers"), len(all_claims) > 50, [name for name in all_claims if "stairs" in name])
"""


def test_python_reads_entry_points_where_a_name_is_unknown(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, "-c", CALLS], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["0", "3 True", "1 True []"], done.stderr


SYSTEM = """
from dataclasses import dataclass
import numpy as np
import scansnap as ss

@ss.SYSTEMS.register("{name}")
@dataclass(frozen=True, kw_only=True)
class Decay(ss.System):
    "x falls at a rate of its own."
    title = "Another system"
    presets = {{"{preset}": ss.Preset("it falls", train={{"lr": 0.1, "steps": 5}})}}
    blocks = property(lambda self: {{"x": ss.Block("lr")}})
    coords = property(lambda self: {{}})
    def start(self, seeds):
        return {{"x": np.ones(len(seeds))}}
    def gradient(self, parameters, data):
        return {{"x": -parameters["x"]}}, parameters["x"] ** 2 / 2
"""
CLAIM = """
import scansnap as ss

@ss.claim(where="here", depends_on="nothing")
def {name}(check):
    "One is positive."
    check.positive("one", [1.0])
"""
FIGURE = """
import scansnap as ss

FIGURE = ss.FigureRecipe(name="{name}", title="t", statement="s", setting="s", prepare=print, draw=print, trends=print)
"""


def distribute(folder: Path, name: str, modules: Mapping[str, str]) -> None:
    """Write a distribution as pip would install it, with one paper."""
    (folder / name).mkdir()
    (folder / f"{name}-1.0.dist-info").mkdir()
    for module, text in {"__init__": "", **modules}.items():
        (folder / name / f"{module}.py").write_text(text, encoding="utf-8")
    for file, text in {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "entry_points.txt": f"[scansnap.papers]\n{name} = {name}\n",
    }.items():
        (folder / f"{name}-1.0.dist-info" / file).write_text(text, encoding="utf-8")


def system(name: str, preset: str = "p") -> str:
    return SYSTEM.format(name=name, preset=preset)


BROKEN = {
    "a": ({"system": "import nothing_like_it"}, "the paper a is left out: ModuleNotFoundError: No module named"),
    "b": ({"system": "1 +"}, "the paper b is left out: SyntaxError"),
    "c": ({"system": "raise SystemExit(3)"}, "the paper c is left out: SystemExit: 3"),
    "d": ({}, "the paper d is left out: ModuleNotFoundError: No module named 'd.system'"),
    "e": ({"system": system("undone") + system("joma")}, "the paper e is left out: the system 'joma' exists already"),
    "f": ({"system": system("syn-small")}, "the paper f is left out: the name 'syn-small' exists already"),
    "g": ({"system": system("scan-and-snap")}, "the paper g is left out: the name 'scan-and-snap' exists already"),
    "h": ({"system": system("of-h", "joma")}, "the preset joma of of-h is left out: the name exists already"),
    "i": ({"system": system("of-i", "syn-small")}, "the preset syn-small of of-i is left out: the name exists already"),
    "j": (
        {"system": system("of-j", "pj"), "claims": CLAIM.format(name="lemma_6")},
        "the module j.claims is left out: the name 'lemma_6' exists already",
    ),
    "k": ({"system": system("of-k", "pk"), "claims": "x"}, "the module k.claims is left out: NameError: name 'x'"),
    "l": (
        {"system": system("of-l", "pl"), "figure": FIGURE.format(name="joma")},
        "the module l.figure is left out: the name 'joma' exists already",
    ),
    "m": ({"system": system("of-m", "pm"), "figure": "1 / 0"}, "the module m.figure is left out: ZeroDivisionError"),
}
"""Distributions that fail or take a name that exists, with what is printed about each."""


def test_a_broken_paper_is_one_sentence_and_breaks_nothing(tmp_path: Path) -> None:
    for name, (modules, _) in BROKEN.items():
        distribute(tmp_path, name, modules)
    distribute(tmp_path, "works", {"system": system("works", "pw"), "claims": CLAIM.format(name="works_too")})
    lines = ("systems", "verify works_too", "figure works", "train --preset pw", "systems joma", "verify --system of-j")
    found = dict(zip(lines, run_commands(*lines, path=tmp_path, cwd=tmp_path), strict=True))
    sentences = [sentence for each in found.values() for sentence in each.err.splitlines()]
    for name, (_, expected) in BROKEN.items():
        assert len([sentence for sentence in sentences if sentence.startswith(f"scansnap: {expected}")]) == 1, name
    assert len([sentence for sentence in sentences if "left out" in sentence]) == len(BROKEN)
    statuses = {line: each.status for line, each in found.items()}
    assert statuses == dict.fromkeys(lines, 0) | {"figure works": 2}  # there is no such figure
    assert "unknown figure 'works'" in found["figure works"].err
    listed = found["systems"].out
    for text in ("\nworks", "\nof-j", "JoMA: hidden layer and", "the paper's (Y, Z), given by", "\npw"):
        assert text in listed
    assert "undone" not in listed  # what a paper registered before it failed
    assert "lemma_6" not in found["verify --system of-j"].out
