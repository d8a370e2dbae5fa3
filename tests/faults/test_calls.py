"""Every public function with nonsense for each of its arguments: a result, or one sentence."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import scansnap as ss
from scansnap import theory
from scansnap.figures import plot
from scansnap.results import measure, metrics
from scansnap.runtime.errors import ScanSnapError
from tests.faults.calls import (
    Call,
    data_calls,
    result_calls,
    run_calls,
    stop_before_long_work,
    text_calls,
    theory_calls,
)
from tests.faults.values import KINDS, drawn

CLAIMS = """
import scansnap as ss

@ss.claim("One is one.", where="here")
def one_is_one(check):
    "By comparison."
    check.equal("one", 1.0, 1.0, tolerance=1.0)
"""

GROUPS: Mapping[str, Callable[[Path], dict[str, Call]]] = {
    "theory": lambda folder: theory_calls(),
    "data": data_calls,
    "runs": run_calls,
    "results": result_calls,
    "text": text_calls,
}

HOLDERS = """
    Check Claim Counts Curve Draw Experiment FigureRecipe FigureResult Finding HeadHistory HeadVerdict Rows Setting
    Shortcuts Snapshot TokenRows Trend Update Verdict Watch
"""
"""Classes that hold what the package itself computes."""

TO_IMPLEMENT = """
    Addition AttentionMap DataSource Normalization Predictor Reading Schedule UpdateRule
"""
"""Classes that users subclass or imitate."""

SAME_AS = {
    "LightningWatch": "watch",
    "TrainerWatch": "watch",
    "TextOptions": "train_text",
    "YZTextOptions": "train_text",
    "PredictOptions": "predict",
    "PositionedClasses": "PositionedClasses.from_parts",
}
"""Names whose arguments are another's."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, where only short work starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "claims.py").write_text(CLAIMS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield tmp_path


def spoil(calls: Mapping[str, Call], per_kind: int, seed: int) -> tuple[int, Counter[str]]:
    """How many calls were made with one argument spoiled, and what came out that was neither result nor sentence."""
    count, wrong = 0, Counter[str]()
    for name, call in calls.items():
        for argument in call.arguments:
            for kind in KINDS:
                for value in drawn(kind, per_kind, seed):
                    count += 1
                    try:
                        call(**{argument: value})
                    except ScanSnapError as error:
                        if "\n" in str(error) or not str(error).endswith((".", "?")):
                            wrong[f"{name}({argument}=...) says: {error}"] += 1
                    except Exception as error:
                        wrong[f"{name}({argument}=...) raises {type(error).__name__}: {error}"[:300]] += 1
    return count, wrong


@pytest.mark.parametrize(("group", "per_kind"), [("theory", 2), ("data", 3), ("results", 1)])
def test_nonsense_is_answered_in_a_sentence(
    group: str, per_kind: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = GROUPS[group](folder)
    stop_before_long_work(monkeypatch)
    _, wrong = spoil(calls, per_kind, seed=1)
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_a_hundred_values_of_every_kind_for_every_argument(
    group: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = GROUPS[group](folder)
    stop_before_long_work(monkeypatch)
    count, wrong = spoil(calls, 100, seed=2)
    with capsys.disabled():
        print(f"\n{group}: {count:,} calls of {len(calls)} names, {wrong.total()} tracebacks")
    assert not wrong


def public_functions() -> dict[str, Callable[..., object]]:
    """Every function of the package's face that takes arguments."""
    face = {name: getattr(ss, name) for name in ss.__all__ if name not in SAME_AS}
    face |= {f"theory.{name}": value for name, value in vars(theory).items()}
    for module in (measure, metrics, plot):
        face |= {
            f"{module.__name__}.{name}": value
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__ and name[0] != "_"
        }
    return {n: value for n, value in face.items() if inspect.isfunction(value) and inspect.signature(value).parameters}


def test_every_public_function_is_validated() -> None:
    """A new function gets the checks by its decorator; one without it fails here."""
    assert {name for name, function in public_functions().items() if not hasattr(function, "validator")} == set()


def test_every_public_name_is_called(folder: Path) -> None:
    """A new name has to be listed among the calls, so that its arguments are spoiled too."""
    called = {name.split(".")[0] for group in ("data", "runs", "results", "text") for name in GROUPS[group](folder)}
    errors = {"InputError", "ScanSnapError", "StoreError"}
    takes_nothing = {"assumed_setting", "syn_small"}
    public = {name for name in set(ss.__all__) - set(SAME_AS) if callable(getattr(ss, name))}
    assert public - called - {*HOLDERS.split(), *TO_IMPLEMENT.split()} - errors - takes_nothing == set()
