"""The documents are true: their commands and examples run, and what they name exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from _site.found import fill

import scansnap as ss
from tests.cli.test_cli import run
from tests.programs import Programs

ROOT = Path(__file__).parent.parent
README, EXTENDING = ROOT / "README.md", ROOT / "docs" / "extending.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
THEORY = sorted((ROOT / "docs" / "theory").glob("*.md"))


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))


def blocks(text: str, language: str) -> list[str]:
    """The code of a page in a language; output has none."""
    fences = re.findall(r"^```(.*?)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [code for name, code in fences if name == language]


def printed_by_commands(page: Path, folder: Path) -> dict[str, str]:
    """What each command of a page prints, of which all that the page shows as output is part.

    Commands that verify are left out: claims have tests of their own.
    """
    printed = {}
    for command in "".join(blocks(page.read_text(), "bash")).splitlines():
        if command.startswith("python "):
            words = shlex.split(command)
            subprocess.run([sys.executable, ROOT / words[1], *words[2:]], cwd=folder, check=True, capture_output=True)
        elif not command.startswith(("pip ", "scansnap verify")):
            done = run(command.removeprefix("scansnap "), cwd=folder)
            assert done.returncode == ("--fail-on" in command), command
            printed[command] = done.stdout
    for shown in blocks(page.read_text(), ""):
        assert any(shown in text for text in printed.values()), shown
    return printed


def run_command(programs: Programs, command: str, folder: Path) -> None:
    program, *words = shlex.split(command)
    assert program == "scansnap"
    programs.run("from scansnap.cli.app import main; main()", folder, words)


def test_readme_commands_run(tmp_path, monkeypatch) -> None:
    """As they stand there; `scansnap train` prints the shares that the caption of its picture gives."""
    monkeypatch.setenv("BROWSER", "true")  # explore opens its page
    printed = printed_by_commands(README, tmp_path)
    before, after = re.search(r"share went from (\d+%) to (\d+%)\.\n", printed["scansnap train"]).groups()
    caption = " ".join(README.read_text().split())
    assert f"Common tokens fall from {before} to {after}" in caption
    plain = ss.train("syn-small", lr_y=10.0, lr_z=20.0, steps=600)
    end = plain["attention"].isel(run=0, step=-1, layer=0, head=0)
    common = end.where(plain["token_kind"] == "common", 0.0).sum("token").mean("class")
    expected = f"leaves common tokens with {common:.0%}, and no token gets more than {end.max():.0%}"
    assert f"plain SGD with ten times the updates {expected}" in caption
    assert expected.partition(",")[0] in (ROOT / "docs" / "gallery.md").read_text()


def test_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 520
    assert sum(path.stat().st_size for path in (ROOT / "docs" / "images").glob("explorer.webp")) < 1e6


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in (README, EXTENDING) and blocks(page.read_text(), "python")],
    ids=lambda page: page.name,
)
def test_examples_of_the_documents_run(page: Path, tmp_path, programs: Programs) -> None:
    """The Python of a page, from its first example to its last."""
    programs.run("\n".join(blocks(page.read_text(), "python")), tmp_path)


INTRODUCTION, *SECTIONS = re.split(r"^(?=## )", EXTENDING.read_text(), flags=re.MULTILINE)
OWN_PARTS = [section for section in SECTIONS if blocks(section, "python")]


@pytest.mark.parametrize("section", OWN_PARTS, ids=lambda section: section.splitlines()[0].removeprefix("## "))
def test_own_parts_are_short_and_run(section: str, tmp_path, programs: Programs) -> None:
    """The code of a section of docs/extending.md, by itself after what the introduction imports."""
    example = "".join(blocks(section, "python"))
    assert len(example.splitlines()) < 40
    file = tmp_path / "parts.py"
    file.write_text("".join(blocks(INTRODUCTION, "python")) + example)
    programs.run(file.read_text(), tmp_path)
    written = "".join(blocks(section, "bash")).splitlines()
    for command in [*written, *re.findall(r"`(scansnap figure [^`]*)`", section)]:
        run_command(programs, re.sub(r"--from \S+", f"--from {file}", command), tmp_path)


def test_examples_of_the_gallery_are_short_and_have_a_picture() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text()
    pictures = re.findall(r"^!\[.+\]\((images/gallery/\w+\.png)\)$", page, re.MULTILINE)
    examples = blocks(page, "python")
    assert len(examples) == len(pictures) == len(list((ROOT / "docs" / "images" / "gallery").iterdir()))
    for example in examples:
        lines = [line for line in example.splitlines() if line and not line.startswith("import ")]
        assert len(lines) <= 10, example


def test_every_kind_of_part_has_an_example() -> None:
    assert OWN_PARTS == SECTIONS


def test_sweep_commands_run(tmp_path) -> None:
    """The commands of docs/sweeps.md, on its own file cut to few steps."""
    page = ROOT / "docs" / "sweeps.md"
    (config,) = blocks(page.read_text(), "toml")
    (tmp_path / "sweep.toml").write_text(config.replace("steps = 100", "steps = 2"))
    printed_by_commands(page, tmp_path)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name == "beyond" or page.name in ("train.md", "text.md")],
    ids=lambda page: page.name,
)
def test_commands_of_a_page_run(page: Path, tmp_path) -> None:
    printed_by_commands(page, tmp_path)


def test_commands_that_watch_run(tmp_path) -> None:
    """On two checkpoints of a small model."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=256, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    )
    for step in (5, 10):
        model.save_pretrained(tmp_path / "run" / f"checkpoint-{step}")
    (tmp_path / "text.txt").write_text((ROOT / "README.md").read_text())
    printed_by_commands(ROOT / "docs" / "watch.md", tmp_path)
    assert {path.name for path in tmp_path.glob("*.html")} == {"demo.html", "snapshots.html", "run.html"}


def test_the_limits_of_verdicts_are_those_of_the_code() -> None:
    from scansnap.monitor import verdict_rules as verdicts

    rows = {
        row.split(" | ")[0].strip("| "): row
        for row in (ROOT / "docs" / "watch.md").read_text().splitlines()
        if row.startswith("| ")
    }
    assert set(verdicts.HEAD_VERDICTS) <= set(rows)
    for name, limits in {
        "exploding-logits": (verdicts.EXPLODED_LOGIT, verdicts.GROWING_LOGIT),
        "collapsed": (verdicts.COLLAPSE_SHARE,),
        "uniform": (verdicts.UNIFORM_ENTROPY_GAP,),
        "sink": (verdicts.MAJORITY_SHARE,),
        "induction-like": (verdicts.MAJORITY_SHARE,),
        "previous-token": (verdicts.MAJORITY_SHARE,),
        "sparse": (verdicts.SPARSE_ENTROPY_SHARE,),
    }.items():
        assert f"| {name} | {verdicts.HEAD_VERDICTS.member(name).severity} |" in rows[name]
        assert all(re.search(rf"\b{limit:g}\b", rows[name]) for limit in limits), name


def test_every_disagreement_has_a_demonstration() -> None:
    """Each row has a number of its own and the claim's place; the claims that fail are all there."""
    text = (ROOT / "docs" / "disagreements.md").read_text()
    rows = [
        re.fullmatch(r"\| (\d+) \|.*\[`(\w+)`\]\(theory/(\w+\.md)#\S+\) \|", line)
        for line in text.splitlines()
        if re.match(r"\| \d", line)
    ]
    for row in rows:
        assert row is not None
        assert f"<!-- found: {row[2]} -->" in (ROOT / "docs" / "theory" / row[3]).read_text(), row[0]
    assert len({row[1] for row in rows}) == len({row[2] for row in rows}) == len(rows)
    index = fill((ROOT / "docs" / "theory" / "index.md").read_text())
    failing = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| fails \|.*$", index, re.MULTILINE)))
    assert failing
    assert set(failing) <= {row[2] for row in rows}
    verdicts = {
        name: verdict
        for verdict, names in re.findall(
            r"^\| (holds|holds under its assumptions only|fails) \|(.*)$", index, re.MULTILINE
        )
        for name in re.findall(r"`(\w+)`", names)
    }
    summary = (ROOT / "docs" / "summary.md").read_text()
    told = re.findall(r"^\| .*\(`(\w+)`\) \| (holds|under assumptions|fails) \|", summary, re.MULTILINE)
    assert len(told) == 10
    for name, verdict in told:
        assert verdicts[name] == {"under assumptions": "holds under its assumptions only"}.get(verdict, verdict), name


def test_every_function_of_the_theory_is_in_a_page() -> None:
    """In what is written by hand: as code that runs, or in words."""
    from scansnap import theory

    written = "".join(page.read_text() for page in THEORY)
    public = [name for name in vars(theory) if callable(getattr(theory, name)) and name[0].islower()]
    assert [name for name in public if not re.search(rf"\b{name}\b", written)] == []


def test_every_claim_has_a_section_of_its_own_with_a_picture() -> None:
    """Under a heading, after what it states, on a page that the index links; and no picture is left over."""
    from scansnap.claims.catalog import paper_claims

    index = (ROOT / "docs" / "theory" / "index.md").read_text()
    sections, tables = {}, {"every_claim", "coverage", "stability"}
    for page in THEORY:
        for text in re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE):
            for name in re.findall(r"<!-- found: (\w+) -->", text):
                sections[name] = text
                assert name in tables or f"](../images/claims/{name}.png)" in fill(text)
                assert len(text.split("<!-- found", 1)[0].splitlines()) > 3 or name in tables, name  # a statement
        assert page.name == "index.md" or f"]({page.name})" in index
    assert set(sections) == tables | {claim.id for claim in paper_claims()}
    assert len(set(sections.values())) == len(sections)
    pictures = {picture.stem for picture in (ROOT / "docs" / "images" / "claims").iterdir()}
    assert pictures == set(sections) - tables


def test_links_between_sections_arrive() -> None:
    for page in THEORY:
        for target, anchor in re.findall(r"\]\(([\w.]+)#([^)\s]+)\)", fill(page.read_text())):
            headings = re.findall(r"^#+ (.*)$", (page.parent / target).read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors, (page, target, anchor)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(
            re.findall(r"\bmake ([a-z-]+)", " ".join(re.findall(r"`[^`\n]+`|^make .*$", page.read_text(), re.M)))
        )
        assert named <= targets, page


def test_named_files_exist() -> None:
    places = [ROOT, ROOT / "src" / "scansnap", *(p for p in (ROOT / "tests").iterdir() if p.is_dir())]
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text):
            assert "://" in target or (page.parent / target).exists(), (page, target)
        for name in re.findall(r"`([\w/]+\.py)`|`python ([\w/]+\.py)", text):
            assert any((place / (name[0] or name[1])).exists() for place in places), (page, name)


def test_names_in_the_documents_exist() -> None:
    """Every `ss.name` in a page is public."""
    import scansnap as ss

    for page in PAGES:
        assert set(re.findall(r"\bss\.(\w+)", page.read_text())) <= set(ss.__all__), page


def test_benchmarks_start(tmp_path, programs: Programs) -> None:
    """Each benchmark explains itself; running them is for a quiet machine."""
    folder = ROOT / "benchmarks"
    names = "figure6_speed", "scaling", "large_vocabulary", "sweep", "flow", "counting", "text_yz"
    for name in names:
        out, _ = programs.run((folder / f"{name}.py").read_text(), tmp_path, ["--help"], beside=folder)
        assert "usage" in out
