"""What a user writes is type-checked: calls that are right pass `mypy --strict`, calls that are wrong do not."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import scansnap as ss

ROOT = Path(__file__).parents[1]

RIGHT = """
import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import scansnap as ss

classes = ss.syn_small()
run = ss.train(classes, lr_y=1.0, lr_z=[0.5, 1.0], steps=10, seeds=range(2), batch_size=None, seq_len=math.inf)
loss: float = float(run["loss"].isel(run=0, step=-1))
options = ss.TrainOptions(lr_y=1.0, lr_z=1.0, steps=3, attention_prior={"common": -2.0})
ss.train("syn-small", **vars(dataclasses.replace(options, steps=4)), store="run.zarr", progress=False)
ss.flow(classes, lr_y=0.5, lr_z=0.05, times=np.geomspace(1, 1e6, 7), decoder_gradient="modified")
ss.sweep({"small": classes}, lr_z=[0.5, 1], lr_y_over_lr_z=[1, 2], residual=[False, True], steps=4)
settings, swept = ss.read_sweep("sweep.toml")
ss.sweep(settings, **{**swept, "seeds": range(3)}, store="sweep.zarr")


class Halving:
    memory: tuple[str, ...] = ()

    def move(self, update: ss.Update) -> None:
        update.matrix.add_(0.5 * update.rate * update.gradient)


@ss.quantity("layer", "head", "class", needs="attention", long_name="largest share")
def largest(now: ss.Snapshot) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.asarray(now.attention.max(-1))


ss.train(classes, lr_y=1.0, lr_z=1.0, steps=3, optimizer=Halving(), record=("loss", largest))
experiments: Mapping[str, ss.Experiment] = ss.PUBLISHED
verdicts: list[ss.Verdict] = ss.verify("lemma_1", classes="syn-small")
corpus = ss.read_corpus("example")
ss.train_text(corpus, steps=2, norm="pre", lr_z=None)
classes = ss.classes_from_text(corpus, queries=["the"], window=20)
words: list[object] = ss.context_words(corpus, "the", least=3)["word"].values.tolist()
"""

WRONG = {
    'ss.train(classes, lr_y="fast", lr_z=1.0, steps=10)': "lr_y",
    "ss.train(classes, lr_y=1.0, steps=10)": "No overload",
    'ss.train(classes, lr_y=1.0, lr_z=1.0, steps=1, decoder_gradient="almost")': "No overload",
    "ss.train(classes, lr_y=1.0, lr_z=1.0, steps=1, stepz=2)": "No overload",
    "ss.flow(classes, lr_y=1.0, lr_z=1.0, times=None)": "No overload",
    'ss.train_text(corpus, norm="sideways")': "No overload",
    'ss.classes_from_text(corpus, split="some")': "No overload",
    "ss.train(classes, lr_y=1.0, lr_z=1.0, steps=1, optimizer=object())": "No overload",
}


UNTYPED = {"FigureResult.as_dict", "Trend.as_dict", "Verdict.as_dict", "read_sweep"}
"""JSON and TOML: no type says more of it."""


def public_signatures() -> dict[str, str]:
    """The signature of every public function and method."""
    members: dict[str, object] = {}
    for name in ss.__all__:
        value = getattr(ss, name)
        inner = vars(value).items() if inspect.isclass(value) or inspect.ismodule(value) else ()
        members[name] = value
        members |= {f"{name}.{word}": part for word, part in inner if not word.startswith("_") and callable(part)}
    ours = {
        name: part
        for name, part in members.items()
        if callable(part) and getattr(part, "__module__", "").startswith("scansnap") and not _is_error(part)
    }
    return {name: str(inspect.signature(part)) for name, part in ours.items()}


def _is_error(part: object) -> bool:
    return inspect.isclass(part) and issubclass(part, Exception)


def test_public_signatures_have_types() -> None:
    signatures = public_signatures()
    assert len(signatures) > 150
    assert {name for name, text in signatures.items() if "Any" in text} <= UNTYPED


def check(tmp_path: Path, text: str) -> str:
    """What mypy says of a user's file, with the settings of the project, so that what it knows of that is used."""
    file = tmp_path / "user.py"
    file.write_text(text)
    command = [sys.executable, "-m", "mypy", "--hide-error-context", str(file)]
    environment = {"MYPYPATH": "src", "PATH": ""}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment).stdout


def test_calls_are_checked_as_they_are_stated(tmp_path: Path) -> None:
    lines = [*RIGHT.splitlines(), *WRONG]
    report = [line for line in check(tmp_path, "\n".join(lines) + "\n").splitlines() if "user.py:" in line]
    report = [line for line in report if ": error:" in line]
    places = {int(line.split(":")[1]): line for line in report}
    first = len(RIGHT.splitlines()) + 1
    assert [line for place, line in places.items() if place < first] == []
    for place, (call, words) in enumerate(WRONG.items(), start=first):
        assert place in places, call
        assert words in places[place], places[place]
