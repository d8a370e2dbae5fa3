"""Every public function with good arguments and with nonsense: a result, or one sentence."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap import theory
from scansnap.figures import plot
from scansnap.results import measure, metrics
from scansnap.runtime.errors import short_repr
from tests.faults.calls import (
    Call,
    data_calls,
    result_calls,
    run_calls,
    stop_before_long_work,
    text_calls,
    theory_calls,
)
from tests.faults.values import KINDS, attempt, drawn

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
    Block Preset Shortcuts Snapshot State TokenRows Trend Update Verdict Watch
"""
"""Classes that hold what the package itself computes."""

TO_IMPLEMENT = """
    Addition AttentionMap DataSource Normalization Predictor Reading Schedule System UpdateRule TokenSelection NextToken
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
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "claims.py").write_text(CLAIMS)
    return tmp_path


def varied(value: Any, rng: np.random.Generator) -> Any:
    """A value of the same kind: a number changed a little, an array or another object as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return value + int(rng.integers(0, 2)) if isinstance(value, int) else value * float(rng.uniform(0.5, 1.0))


def call_with_nonsense(calls: Mapping[str, Call], count: int, seed: int) -> Counter[str]:
    """Call public functions, half of the time with one argument replaced by nonsense, and count what came out."""
    rng, seen = np.random.default_rng(seed), Counter[str]()
    nonsense = {kind: drawn(kind, count, seed) for kind in KINDS}
    names = list(calls)
    for number in range(count):
        name = names[number % len(names)]
        call, kind = calls[name], str(rng.choice(list(KINDS)))
        argument = str(rng.choice(list(call.arguments)))
        value = next(nonsense[kind]) if rng.random() < 0.5 else varied(call.arguments[argument], rng)
        seen[attempt(lambda: call(**{argument: value}), f"{name}({argument}={short_repr(value)})")] += 1  # noqa: B023
    return seen


@pytest.mark.parametrize(("group", "count"), [("theory", 1200), ("data", 600), ("results", 120)])
def test_calls_with_nonsense(group: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = GROUPS[group](folder)
    stop_before_long_work(monkeypatch)
    seen = call_with_nonsense(calls, count, seed=1)
    assert set(seen) == {"valid", "refused"}, seen
    assert seen["valid"] > count / 3


def public_functions() -> dict[str, Callable[..., object]]:
    """Every public function that takes arguments."""
    public = {name: getattr(ss, name) for name in ss.__all__ if name not in SAME_AS}
    public |= {f"theory.{name}": value for name, value in vars(theory).items()}
    for module in (measure, metrics, plot):
        public |= {
            f"{module.__name__}.{name}": value
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__ and name[0] != "_"
        }
    return {
        n: value for n, value in public.items() if inspect.isfunction(value) and inspect.signature(value).parameters
    }


def test_every_public_function_is_validated() -> None:
    """A new function gets the checks by its decorator; one without it fails here."""
    assert {name for name, function in public_functions().items() if not hasattr(function, "validator")} == set()


def test_every_public_name_is_called(folder: Path) -> None:
    """A new name has to be listed among the calls, so that it is fuzzed too."""
    called = {name.split(".")[0] for group in ("data", "runs", "results", "text") for name in GROUPS[group](folder)}
    errors = {"InputError", "ScanSnapError", "StoreError"}
    takes_nothing = {"assumed_setting", "syn_small"}
    public = {name for name in set(ss.__all__) - set(SAME_AS) if callable(getattr(ss, name))}
    assert public - called - {*HOLDERS.split(), *TO_IMPLEMENT.split()} - errors - takes_nothing == set()
