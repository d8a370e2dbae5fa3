"""The program, as a person or a script meets it."""

from __future__ import annotations

import io
import json
import linecache
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import click
import numpy as np
import pytest

import scansnap as ss
from scansnap.cli.app import COMMANDS, GROUPS, LazyGroup, app, main
from scansnap.cli.flags import HelpContext
from scansnap.runtime.removed import REMOVED_COMMANDS
from scansnap.storage.provenance import commit


def run(line: str, *more: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line, and more words, in this process, which saves importing torch for every command."""
    words = [*shlex.split(line), *more]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["scansnap", *words])
        patch.setenv("COLUMNS", "100")
        patch.setenv("NO_COLOR", "1")
        patch.chdir(cwd)
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def printed(line: str, *more: str, cwd: Path) -> str:
    """What a command prints that succeeds."""
    done = run(line, *more, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(line: str, *more: str, cwd: Path) -> str:
    """What a command says that is refused."""
    done = run(line, *more, cwd=cwd)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    return done.stderr


def test_train_says_what_happened_and_where_it_is(tmp_path) -> None:
    lines = printed("train --preset syn-small --seeds 0,1", cwd=tmp_path).splitlines()
    assert lines[0].startswith("run 0 (lr_y 1, lr_z 1, momentum 0.9, seed 0): loss 3.53 →")
    assert lines[-1].startswith("result: results/train-syn-small-")
    path = tmp_path / lines[-1].split()[1]
    picture = tmp_path / lines[-2].split()[1]
    sizes = {"run": 2, "step": 51, "layer": 1, "head": 1, "class": 2, "query": 2, "token": 30}
    assert ss.load(path).sizes == sizes
    assert picture.read_bytes().startswith(b"\x89PNG")
    expected = dict(runpy.run_path(str(Path(__file__).parents[2] / "release" / "check.py"))["SMOKE"])
    assert re.search(expected["train --preset syn-small"], "\n".join(lines))


def test_train_names_momentum_once_where_attention_moves(tmp_path) -> None:
    note = "Momentum 0.9 can keep attention moving after the gradient has vanished."
    assert printed("train --seeds 0,1", cwd=tmp_path).count(note) == 1
    assert note not in printed("train --momentum 0 --steps 600", cwd=tmp_path)
    slow = "train --classes syn-small --lr-y 0.01 --lr-z 0.01 --steps 20 --momentum 0.9"
    assert "hardly moved" in printed(slow, cwd=tmp_path)
    assert note not in printed(slow, cwd=tmp_path)


def test_train_json_and_python_agree(tmp_path) -> None:
    words = "train --lr-y 2 --lr-z 0.5 --steps 6 --batch-size none --seq-len inf"
    outcome = json.loads(printed(words, "--store", "mine.zarr", "--json", cwd=tmp_path))
    assert outcome["result"] == "mine.zarr"
    assert outcome["runs"][0]["status"] == "ok"
    expected = ss.train("syn-small", lr_y=2.0, lr_z=0.5, steps=6, batch_size=None, seq_len=np.inf, momentum=0.9)
    assert outcome["runs"][0]["loss_last"] == float(expected["loss"][0, -1])
    assert np.array_equal(ss.load(tmp_path / "mine.zarr")["attention"][0, -1], expected["attention"][0, -1])


def test_own_classes(tmp_path) -> None:
    ss.write_classes(ss.syn_medium(num_query=2), tmp_path / "mine.toml")
    said = refusal("train --classes mine.toml", cwd=tmp_path)
    line = "train --classes mine.toml --lr-y 5 --lr-z 10 --steps 60"
    assert "--lr-y, --lr-z, --steps must be given" in said
    assert f"try scansnap {line}, or the options of a preset" in said
    paths = {printed(line, cwd=tmp_path).splitlines()[-1].split()[1]}
    (tmp_path / "mine.toml").unlink()
    ss.write_classes(ss.syn_medium(num_query=3), tmp_path / "mine.toml")
    paths.add(printed(line, cwd=tmp_path).splitlines()[-1].split()[1])
    assert len(paths) == 2  # other classes in a file of the same name are another run
    assert all(path.startswith("results/train-mine-") for path in paths)


def test_flow(tmp_path) -> None:
    outcome = json.loads(printed("flow --preset single-common --times log:1:1e9:12 --json", cwd=tmp_path))
    ds = ss.load(tmp_path / outcome["result"])
    assert ds["time"].values[-1] == pytest.approx(1e9)
    assert outcome["runs"][0]["loss_last"] == pytest.approx(2e-8, rel=0.1)
    story = " ".join(outcome["runs"][0]["story"])
    assert re.search(r"time \d", story)
    assert not re.search(r"time [\d,]*\.\d{3}", story)  # of a time between records, three digits are enough


def test_the_same_command_again_only_reads(tmp_path) -> None:
    words = "train --steps 3 --store r.zarr"
    first = printed(words, cwd=tmp_path)
    stamp = (tmp_path / "r.zarr" / "zarr.json").stat().st_mtime_ns
    assert printed(words, cwd=tmp_path).splitlines()[0] == first.splitlines()[0]
    assert (tmp_path / "r.zarr" / "zarr.json").stat().st_mtime_ns == stamp
    assert "holds another run, with steps = 3 and not 4" in refusal("train --steps 4 --store r.zarr", cwd=tmp_path)


REFUSED = [
    ("train --lr 0.1", "--lr is given, which (Y, Z) does not have: use --lr-y and --lr-z"),
    ("sweep --preset syn-small --lr-theta 1,2", "--lr-theta is given, which (Y, Z) does not have"),
    ("train --preset syn-smal", "did you mean 'syn-small'?"),
    ("train --lr-y fast", "--lr-y is 'fast'"),
    ("train --seeds 0:x", "--seeds is '0:x'"),
    ("train --preset syn-small --classes x.toml", "cannot read the classes file x.toml"),
    ("train --preset syn-small --config x.toml", "choose one source of options"),
    ("train --picture x.gif", "name ends in .png, .pdf or .svg"),
    ("train --record loss --picture x.png", "--picture needs attention, entropy"),
    ("flow --times log:1:x:3", "--times is 'log:1:x:3'"),
    ("verify theorem_33", "did you mean 'theorem_3'?"),
    ("verify --picture x.png", "--picture draws one claim"),
    ("verify theorem_4 --preset syn-small", "it needs exactly one common token"),
    ("flow --preset syn-small-adam", "is trained by adam, but flow and verify are about SGD"),
    ("sweep --lr-z 1", "--classes, --steps must be given"),
    ("sweep --classes syn-small --lr-z 1 --steps 2", "the decoder's rate is missing"),
    ("sweep --config absent.toml", "cannot read absent.toml"),
    ("train --attention-prior common", "--attention-prior is 'common': give tokens or kinds"),
    ("sweep --classes syn-small --residual maybe", "--residual is 'maybe': give yes, no, or one of query."),
    ("figure 13", "unknown figure '13': choose one of 2, 3"),
    ("figure 7", "this figure is made from text: give"),
    ("figure 6 --text example", "figure 6 does not use text: leave it out."),
    ("figure 10 --text nowhere/at/all", "there is no text at nowhere/at/all"),
    ("figure 8 --num-seeds 3", "figure 8 does not use num_seeds: leave it out."),
    ("figure 6 --num-seeds 1", "num_seeds is 1: give a whole number from 2 to 10,000."),
    ("figure 6 --from my_figures.py", "cannot read the file my_figures.py: No such file or directory."),
    ("figure 6 --picture x.gif", "name ends in .png, .pdf or .svg"),
    ("figure 6 --store .", "exists already: give another name"),
    ("trane", "Did you mean 'train'?"),
    ("train --stepz 4", "--steps"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_refusals_are_one_sentence(tmp_path, words: str, message: str) -> None:
    assert message in refusal(words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []  # refused before anything is done


def test_commands_are_listed_in_their_order(tmp_path) -> None:
    """Those that a newcomer needs come first, and not by the alphabet."""
    for group, homes in (("", COMMANDS), *((name, homes) for name, (_, homes) in GROUPS.items())):
        listed = re.findall(
            r"^  (\w+) ", printed(f"{group} --help", cwd=tmp_path).partition("Commands:")[2], re.MULTILINE
        )
        assert listed == [*homes, *(GROUPS if not group else ())]


@pytest.mark.parametrize("name", REMOVED_COMMANDS)
def test_a_removed_command_is_answered_by_what_replaces_it(tmp_path, name: str) -> None:
    """Whatever words follow, and the replacement is a command that exists."""
    for words in (name, f"{name} example --window 3", f"{name} --help"):
        sentence = f"the command '{name}' was removed in version 0.2: {REMOVED_COMMANDS[name]}."
        assert refusal(words, cwd=tmp_path) == f"scansnap: {sentence}\n"
    for group, command in re.findall(r"scansnap (text|watch) (\w+)", REMOVED_COMMANDS[name]):
        assert command in app.load(group).commands
    (first, *rest) = name.split()
    assert first not in app.commands or rest[0] not in app.load(first).commands


OWN_FLAGS = [
    ("text show missing.zarr --layer -1", "--layer is -1: give a whole number from 0 to 1,000,000,000."),
    ("text show missing.zarr --window two", "--window is 'two': give a whole number."),
    ("verify lemma_6 --lr-z fast", "--lr-z is 'fast': give a number."),
    ("watch checkpoints . --probe x.txt --windows 0", "--windows is 0: give a whole number from 1"),
    ("watch compare a b --tolerance -0.1", "--tolerance is -0.1: give a finite number of at least 0."),
    (f"check {'x' * 300}", "store is "),
    ("train --set hidden=16", "--set is given without --system"),
    ("train --system reversal --set width", "--set is 'width': give a name and a value, such as hidden=16."),
]


@pytest.mark.parametrize(("words", "message"), OWN_FLAGS, ids=[words[:40] for words, _ in OWN_FLAGS])
def test_flags_of_commands_are_checked_as_options_are(tmp_path, words: str, message: str) -> None:
    said = refusal(words, cwd=tmp_path)
    assert said.startswith(f"scansnap: {message}")
    assert said.count("\n") == 1


def test_version_and_a_single_time(tmp_path) -> None:
    assert printed("--version", cwd=tmp_path).strip() == f"scansnap {ss.__version__} (commit {commit()})"
    assert "picture" not in printed("flow --times 10", cwd=tmp_path)


def test_help_states_defaults(tmp_path) -> None:
    """Those of options, of variants of a command, and of flags of its own, as one types them."""
    for command, words in {
        "train": ["[default: no-learn-position-bias]", "[default: no]", "[default: zeros]"],
        "text train": ["[default: 35; yz: 36]", "[default: 20; yz: 64]"],
        "watch show": ["[default: normalized_entropy]", "[default: 2.0]"],
        "sweep": ["Separate several values with /"],
    }.items():
        shown = " ".join(printed(f"{command} --help", cwd=tmp_path).split())
        assert [each for each in words if each not in shown] == [], command


@pytest.mark.parametrize("columns", [60, 80])
def test_help_is_whole_at_any_width_and_speaks_no_python(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is cut or broken; types, truth values and names of Greek letters are not what you type or read."""
    monkeypatch.setenv("COLUMNS", str(columns))
    groups = [app]
    for group in groups:
        for name in group.commands:
            command = group.load(name)
            if isinstance(command, LazyGroup):
                groups.append(command)
            context = HelpContext(command, info_name=name, terminal_width=columns)
            text = re.sub(r"\x1b\[\d+m", "", command.get_help(context))
            assert max(map(len, text.splitlines())) <= columns, name
            assert not re.findall(r"\w(?:-|\.\.\.)$", text, re.MULTILINE), name
            assert not re.findall(r"list\[|default: (?:True|False|None)|\beta_|lambda_", text), name
            assert "Positional arguments" not in text  # arguments have a section of ours
            assert ("\nArguments:" in text) == any(isinstance(each, click.Argument) for each in command.params), name
            if "--preset" in text:
                assert set(ss.PUBLISHED) <= set(text.split()), name


def test_the_table_of_claims_fits_a_terminal(tmp_path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        'import scansnap as ss\n@ss.claim(statement="One is positive, " * 9, where="here")\n'
        'def one(check):\n    check.positive("one", [1.0])\n'
    )
    rows = printed("verify --from", str(file), cwd=tmp_path).splitlines()[:2]
    assert max(map(len, rows)) <= 100
    assert [row[-1] for row in rows] == ["…", "…"]
    alone = json.loads(printed("verify --json --from", str(file), cwd=tmp_path))
    assert [verdict["id"] for verdict in alone] == ["one"]  # a list, however many claims a file has


def test_sweep_shows_its_cells_and_reads_a_config(tmp_path) -> None:
    (tmp_path / "sweep.toml").write_text(
        'classes = "syn-small"\nlr_z = [0.5, 1]\nlr_y_over_lr_z = [1, 2]\nsteps = 4\nseeds = "0:3"\nbatch_size = 8\n'
    )
    lines = printed("sweep --config sweep.toml --lr-z 1", cwd=tmp_path).splitlines()
    assert len(lines) == 4  # a heading, two cells, where the result is
    facts = json.loads(printed("sweep --config sweep.toml --lr-y 3 --json", cwd=tmp_path))
    assert [(cell["lr_z"], cell["lr_y"], cell["ok"]) for cell in facts["cells"]] == [(0.5, 3.0, 3), (1.0, 3.0, 3)]
    assert ss.load(tmp_path / facts["result"])["loss"].shape == (1, 2, 1, 3, 2)  # classes, rates, seeds, steps
    assert (facts["runs"], facts["runs_before"]) == (6, 0)
    assert "6 of 6 runs were already there" in printed("sweep --config sweep.toml --lr-z 1", cwd=tmp_path)


def test_sweep_maps_all_runs(tmp_path) -> None:
    words = "sweep --classes syn-small --lr-y 1,5 --steps 3 --batch-size 4"
    result = printed(words, "--lr-z", "1,5", "--seeds", "0:2", "--picture", "map.svg", "--json", cwd=tmp_path)
    assert json.loads(result)["picture"] == "map.svg"
    labels = re.findall(r"<!-- (\w+) rate", (tmp_path / "map.svg").read_text())
    assert labels == ["decoder", "attention"]  # across, and then upward, as ss.phase_diagram has them
    said = refusal(words, "--lr-z", "1", "--picture", "map.png", cwd=tmp_path)
    assert "--picture maps two options, but this sweep varies lr_y: give lists for two" in said


def test_the_table_of_a_sweep_counts_what_finished_and_what_it_leaves_out(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("scansnap.cli.sweep.CELLS_IN_TABLE", 2)
    words = "sweep --classes syn-small --lr-y 1e39,1,2 --lr-z 1 --steps 3 --seeds 0:2 --batch-size 4"
    _, diverged, finished, more, _ = printed(words, cwd=tmp_path).splitlines()
    assert " 0 of   2 " in diverged
    assert " of " not in finished
    assert more.startswith("... and 1 more cells")


def test_verify_explains_a_claim(tmp_path) -> None:
    """lemma_6 has lines, definition_e_prime only comparisons."""
    comparisons = printed("verify definition_e_prime", cwd=tmp_path)
    assert "picture: results/definition_e_prime.png" in comparisons
    assert "depends on" not in comparisons
    explained = printed("verify lemma_6 --strict", cwd=tmp_path)
    assert "\x1b" not in explained  # colors are for terminals
    assert "lemma_6 (Lemma 6, Eqs. 44 and 45): holds" in explained
    assert "category:   sharpened (true, and there is a better form), in its own setting" in explained
    assert "the paper's assumptions: all met (ten times is taken for much larger; η_Y/η_Z = 1000)" in explained
    assert "a wrong factor of 1.000001 in the prediction would be noticed" in explained
    assert (tmp_path / "results" / "lemma_6.png").stat().st_size > 10_000


def test_verify_speaks_json(tmp_path) -> None:
    single = json.loads(printed("verify lemma_4 --json", cwd=tmp_path))
    assert {"id", "statement", "predicted", "measured", "deviation", "verdict"} <= set(single)
    assert single["verdict"] == "fails"
    assert single["correction"]
    assert run("verify lemma_4 --json --strict", cwd=tmp_path).returncode == 1
    conditional = json.loads(printed("verify lemma_2 --json --strict", cwd=tmp_path))
    assert conditional["verdict"] == "holds under its assumptions only"
    two = json.loads(printed("verify lemma_6 lemma_13 --json --lr-y 0.2", cwd=tmp_path))
    assert [entry["id"] for entry in two] == ["lemma_6", "lemma_13"]
    for words, rates in (("", (2.0, 1.0)), ("--lr-y 3", (3.0, 1.0)), ("--classes single-common", (2.0, 1.0))):
        setting = json.loads(printed(f"verify lemma_6 --json --preset syn-medium {words}", cwd=tmp_path))["setting"]
        assert (setting["lr_y"], setting["lr_z"]) == rates
        assert ("vocab_size=1000" in setting["classes"]) == ("single" in words)
    about_a_lemma = json.loads(printed("verify 'Lemma 7' --json", cwd=tmp_path))
    assert [entry["id"] for entry in about_a_lemma] == ["lemma_7", "lemma_7_shift"]
    assert "--picture draws one claim" in refusal("verify 'Lemma 7' --picture x.png", cwd=tmp_path)
    assert two[0]["setting"]["lr_y"] == 0.2
    for words, rates in (("", [10.0, 20.0]), (" --lr-y 3", [3.0, 20.0]), (" --lr-z 3", [10.0, 3.0])):
        setting = json.loads(printed(f"verify lemma_6 --preset scan-and-snap --json{words}", cwd=tmp_path))["setting"]
        assert [setting["lr_y"], setting["lr_z"]] == rates


def test_a_system_s_result_is_named_and_its_quantities_are_explained(tmp_path) -> None:
    lines = printed("train --preset identity-bridge --steps 2 --seeds 0", cwd=tmp_path).splitlines()
    assert lines[0].startswith("identity-bridge: ")
    assert "asked_loss 2.773 → 2.773" in lines[1]
    assert "  asked_loss: loss of the asked sentences" in lines
    assert lines[-1].startswith("result: results/train-identity-bridge-")


def test_diverged_runs_are_named(tmp_path) -> None:
    result = run("train --preset syn-small --lr-y 1,1e39 --steps 5", cwd=tmp_path)
    assert result.returncode == 0
    assert "run 1 (lr_y 1e+39, lr_z 1, momentum 0.9, seed 0): diverged at step" in result.stdout
    assert "1 of 2 runs did not finish" in result.stderr
    assert "entropy on distinct tokens 2.15 → not finite" in result.stdout


PARTS = """
from dataclasses import dataclass
import scansnap as ss

@ss.OPTIMIZERS.register("plain")
@dataclass(frozen=True)
class Plain:
    def move(self, update):
        update.matrix.add_(update.rate * update.gradient)

@ss.ADDITIONS.register("half")
@dataclass(frozen=True)
class Half:
    def forward(self, u, query):
        return u + query / 2

@ss.QUANTITIES.register("largest")
@ss.quantity("layer", "head", "class", needs="attention")
def largest(now):
    return now.attention.max(-1)

@ss.QUANTITIES.register("hopeless")
@ss.quantity(needs="loss")
def hopeless(now):
    return now.nothing
"""


@pytest.fixture
def _own_lists(monkeypatch) -> None:
    """What a test registers is gone after it."""
    for members in (ss.OPTIMIZERS, ss.ADDITIONS, ss.QUANTITIES):
        monkeypatch.setattr(members, "_makers", {**members})


@pytest.mark.usefixtures("_own_lists")
def test_parts_of_your_own_by_name(tmp_path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    own = (
        "--from parts.py --classes syn-small --lr-y 1 --lr-z 1 --steps 4 --optimizer plain --residual "
        "half --record loss,largest"
    )
    printed("flow --residual half --times 1,10 --store f.zarr --from parts.py", cwd=tmp_path)  # which is read first
    train, again = (printed(f"train {own}", cwd=tmp_path).splitlines()[-1].split()[1] for _ in range(2))
    assert train == again
    printed(f"sweep {own} --residual no,half --store s.zarr", cwd=tmp_path)
    result = ss.load(tmp_path / "s.zarr")
    assert result["residual"].values.tolist() == [False, "half"]
    last = result["largest"].isel(residual=1, step=-1).values
    alone = ss.load(tmp_path / train)["largest"].isel(step=-1).values
    np.testing.assert_allclose(last.ravel(), alone.ravel(), rtol=1e-6)

    (tmp_path / "parts.py").write_text(PARTS.replace("query / 2", "query / 3"))
    linecache.checkcache()
    other = printed(f"train {own}", cwd=tmp_path)  # other code is another run, with a name of its own
    assert train not in other
    assert refusal(f"sweep {own} --residual no,half --store s.zarr", cwd=tmp_path) == (
        "scansnap: s.zarr was begun with other code of the residual half: undo the change to continue it, or give "
        "another name.\n"
    )


@pytest.mark.usefixtures("_own_lists")
def test_a_mistake_in_your_own_file_is_one_sentence(tmp_path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    words = "--from parts.py --classes syn-small --lr-y 1 --lr-z 1 --steps 4 --record hopeless"
    sentence = "the quantity hopeless fails with AttributeError: 'Snapshot' object has no attribute 'nothing'"
    assert refusal(f"train {words}", cwd=tmp_path) == f"scansnap: {sentence} (parts.py, line 25).\n"
    assert sentence in refusal(f"sweep {words}", cwd=tmp_path)
