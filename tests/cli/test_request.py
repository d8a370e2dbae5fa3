"""What `train`, `flow` and `sweep` hand to the library: systems or classes, and where each option comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scansnap as ss
from tests.cli.test_cli import printed, refusal, run

Handed = Callable[[str], tuple[Any, dict[str, Any]]]


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Handed:
    """The source and the options with which a command calls the library, which computes nothing."""
    _ = ss.train, ss.flow, ss.sweep  # import them before they are replaced
    calls: list[tuple[Any, dict[str, Any]]] = []

    def take(source: object, *, store: Path, progress: bool | None, **options: object) -> None:
        calls.append((source, options))
        raise ss.InputError("taken")

    def call(line: str) -> tuple[Any, dict[str, Any]]:
        assert run(line, cwd=tmp_path).stderr.endswith("scansnap: taken\n")
        return calls.pop()

    for command in ("train", "flow", "sweep"):
        monkeypatch.setattr(f"scansnap.dynamics.{command}.{command}", take)
    return call


YZ = {"lr_y": 1.0, "lr_z": 1.0}
SAME_IN_PYTHON = [
    (
        "train --preset syn-small --steps 4 --momentum 0 --residual yes --normalization layer --heads 2 --init uniform "
        "--init-scale-z 3 --attention-prior common=-1,11=0.5 --num-sequences 20 --dtype float64 --record loss",
        ss.TrainOptions(
            **YZ,
            steps=4,
            momentum=0.0,
            residual=True,
            normalization="layer",
            heads=2,
            init="uniform",
            init_scale_z=3.0,
            attention_prior={"common": -1.0, 11: 0.5},
            num_sequences=20,
            dtype="float64",
            record=("loss",),
            record_every=2,
        ),
    ),
    (
        "train --classes near-distinct --lr-y 1 --lr-z 1 --seq-len 4 --steps 3 --position-bias 0,-1,-2 "
        "--learn-position-bias",
        ss.TrainOptions(
            lr_y=[1.0], lr_z=[1.0], seq_len=4, steps=3, position_bias=[0, -1, -2], learn_position_bias=True
        ),
    ),
    (
        "flow --times 1,10 --residual yes --normalization layer --attention-prior common=-1 --position-bias alibi=1",
        ss.FlowOptions(
            **YZ,
            times=(1.0, 10.0),
            residual=True,
            normalization="layer",
            attention_prior={"common": -1.0},
            position_bias={"alibi": 1.0},
        ),
    ),
    (
        "sweep --classes syn-small --lr-z 1 --lr-y 1,2 --steps 2 --residual no,yes --num-sequences 4,none "
        "--attention-prior none/common=-2 --heads 1",
        {
            "lr_z": [1.0],
            "lr_y": [1.0, 2.0],
            "steps": 2,
            "residual": [False, True],
            "num_sequences": [4, None],
            "attention_prior": [None, {"common": -2.0}],
            "heads": 1,
        },
    ),
]


@pytest.mark.parametrize(("line", "expected"), SAME_IN_PYTHON, ids=[line.split()[0] for line, _ in SAME_IN_PYTHON])
def test_flags_are_the_options_of_python(handed: Handed, line: str, expected: object) -> None:
    _, options = handed(line)
    assert (options if isinstance(expected, dict) else type(expected)(**options)) == expected


def test_flags_replace_a_file_and_a_file_replaces_a_preset(handed: Handed, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text("lr_y_over_lr_z = [1, 2]\nlr_z = [3]\nsteps = 7\nclasses = 'single-common'\n")
    systems, options = handed("sweep --preset syn-medium --config sweep.toml --lr-z 4,5")
    assert list(systems) == ["single-common"]
    assert options["lr_z"] == [4.0, 5.0]
    assert options["lr_y_over_lr_z"] == [1, 2]
    assert "lr_y" not in options  # of the preset, which the ratio replaces
    assert (options["steps"], options["init"]) == (7, "uniform")
    assert handed("sweep --config sweep.toml --lr-y-over-lr-z 5,6")[1]["lr_y_over_lr_z"] == [5.0, 6.0]
    _, options = handed("sweep --preset syn-medium --config sweep.toml --lr-y 6")
    assert options["lr_y"] == [6.0]
    assert "lr_y_over_lr_z" not in options
    (tmp_path / "train.toml").write_text("lr_y = 1\nlr_z = 3\nsteps = 7\nclasses = 'single-common'\n")
    source, options = handed("train --config train.toml --lr-y 2")
    assert source == ss.single_common()
    assert (options["lr_y"], options["lr_z"], options["steps"]) == ([2.0], 3.0, 7)
    source, options = handed("train --config train.toml --classes syn-small")
    assert source == ss.syn_small()


def test_a_sweep_and_a_flow_record_what_they_do_by_default(handed: Handed) -> None:
    """A preset says what `train` records, at which steps."""
    for line in ("sweep --preset syn-small", "sweep --preset joma-figure-2", "flow --preset syn-small"):
        assert not {"record", "record_every"} & set(handed(line)[1]), line
    assert handed("train --preset syn-small")[1]["record_every"] == 2
    assert handed("train --preset joma-figure-2")[1]["record"] == ("loss", "entropy", "z", "v", "estimate")


def test_times_make_a_sweep_of_flows(handed: Handed, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text("lr_y = [1, 2]\nlr_z = [3]\nsteps = 7\nclasses = 'single-common'\n")
    for line in ("sweep --config sweep.toml", "sweep --preset syn-small", "sweep --preset joma"):
        assert "times" not in handed(line)[1]
        options = handed(f"{line} --times 1,10")[1]
        assert options["times"] == [1.0, 10.0]
        assert "steps" not in options


def test_a_flow_has_times_and_a_preset_by_default(handed: Handed) -> None:
    source, options = handed("flow")
    assert source == ss.syn_small()
    assert (options["lr_y"], len(options["times"]), options["times"][-1]) == (1.0, 97, pytest.approx(1e12))
    assert len(handed("flow --classes syn-small --lr-y 1 --lr-z 1")[1]["times"]) == 97
    assert len(handed("flow --preset joma")[1]["times"]) == 25
    assert handed("train")[1]["lr_z"] == 20.0


def test_another_optimizer_drops_the_momentum_of_a_setting(handed: Handed, tmp_path: Path) -> None:
    assert handed("train --preset syn-small")[1]["momentum"] == 0.9
    assert "momentum" not in handed("train --preset syn-small --optimizer adam")[1]
    assert handed("train --preset syn-small --optimizer sgd")[1]["momentum"] == 0.9
    assert "momentum" not in handed("sweep --preset syn-small --optimizer sgd,adam")[1]
    assert "the rates of syn-small suit sgd" in run("train --preset syn-small --optimizer adam", cwd=tmp_path).stderr
    assert "suit sgd" not in run("train --preset syn-small --optimizer adam --lr-y 1", cwd=tmp_path).stderr


def test_settings_of_a_system_come_from_its_preset_and_from_set(handed: Handed, tmp_path: Path) -> None:
    system, options = handed("train --preset joma --set hidden=5 --set residual=no --set lr_v=0.5,0.6 --lr-z 3")
    assert (system.concentration, system.hidden, system.residual) == (0.3, 5, False)
    assert (options["lr_v"], options["lr_z"], options["steps"]) == ([0.5, 0.6], [3.0], 12_000)
    assert handed("train --preset joma --set concentration=0.5")[0].concentration == 0.5
    assert handed("flow --preset joma")[1]["lr_z"] == 100.0
    assert handed("sweep --system joma --preset joma")[0].concentration == 0.3
    for words, said in (
        ("train --preset joma --batch-size 4", "--batch-size is given, which joma"),
        ("train --preset joma --classes syn-small", "--classes is given, which joma"),
        ("sweep --system joma --config x.toml --lr-v 1", "--config is given, which joma"),
        (
            "train --system joma",
            "--steps, --lr-v, --lr-z must be given, here or by a preset of the system (joma, joma-",
        ),
        ("train --preset joma --set hiden=4", "unknown setting of joma 'hiden': did you mean 'hidden'?"),
        (
            "train --preset joma --system reversal",
            "--preset joma belongs to the system joma: leave out --system reversal",
        ),
        ("train --system joma --preset nothing", "unknown preset of joma 'nothing'"),
        ("train --system jona", "unknown system 'jona': did you mean 'joma'?"),
    ):
        assert said in refusal(words, cwd=tmp_path), words


def test_an_explicit_none_is_not_a_missing_flag(handed: Handed) -> None:
    assert handed("train --preset single-common --num-sequences none --momentum none")[1]["num_sequences"] is None
    options = handed("train --preset syn-small --momentum none --residual yes --no-learn-position-bias")[1]
    assert options["momentum"] is None
    assert (options["residual"], options["learn_position_bias"]) == (True, False)


def test_a_system_is_described_and_failed_runs_are_counted(tmp_path: Path) -> None:
    rates = "--lr-v 0.1,1e200 --lr-z 1 --seeds 0"
    line = f"train --preset joma --set activation=square {rates} --steps 4 --record loss,entropy"
    done = run(line, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("joma: attention becomes sparse")
    assert lines[1].startswith("run 0 (lr_v 0.1, lr_z 1, seed 0): ok; entropy ")
    assert lines[2].startswith("run 1 (lr_v 1e+200, lr_z 1, seed 0): diverged; entropy ")
    assert "  entropy: entropy of attention, mean over contexts" in lines
    assert "1 of 2 runs did not finish: lower their learning rates." in done.stderr
    assert "... and 2 more runs" in printed("train --steps 2 --seeds 0:14", cwd=tmp_path).splitlines()
    assert printed("sweep --system joma --preset joma --steps 1 --lr-z 1,2", cwd=tmp_path).splitlines()[0].split() == [
        *("lr_z", "lr_v", "runs", "loss")
    ]
