"""A good call of every public function and class, which the fuzzers then spoil argument by argument.

What is called, and the types of arguments, follow from the public names, their signatures and the declared options.
The good arguments are those of the example in the docstring, which `tests/test_public_names.py` runs too.
"""

from __future__ import annotations

import contextlib
import doctest
import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics.options import SweepExecution
from scansnap.runtime.errors import InputError, short_repr
from scansnap.text.classes import ClassOptions
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.options import options_of
from tests.faults.values import attempt, good, nonsense

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from _site.public import docstring, public_names

HOLDERS = """
    Check Claim Curve Draw Experiment FigureRecipe FigureResult HeadHistory HeadVerdict Rows Setting
    Block Preset Snapshot State TokenRows Trend Update Verdict Watch
"""
"""Classes that hold what the package itself computes."""

TO_IMPLEMENT = """
    Addition AttentionMap DataSource Normalization Schedule System UpdateRule TokenSelection NextToken
"""
"""Classes that users subclass or imitate."""

WRAPPERS = ("LightningWatch", "TrainerWatch")
"""Names whose arguments are those of `watch`."""

GROUPS = {
    "theory": "theory",
    "data": "data",
    "runs": "",
    "results": "results figures report",
    "text": "text monitor",
}
"""Packages whose functions are called together; those of all others are "runs"."""

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "compare_gradients": {"heads": 1, "residual": False},
    "reproduce": {"figures": [], "claims": ["lemma_6"]},
    "save": {"overwrite": True},
    "theory.symmetric_flow": {"times": [1.0]},
    "verify": {"ids": ("lemma_6",)},
    "write_classes": {"path": "again.json"},
    "write_experiment": {"path": "again.toml"},
}
"""Arguments that differ from those of the example, which takes long, is short of arguments or has written a file."""

DECORATORS = (ss.claim, ss.quantity, ss.head_quantity, ss.head_verdict)


@dataclass(frozen=True)
class Call:
    """A function with the arguments of a good call."""

    function: Callable[..., Any]
    given: Mapping[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """Every argument: the given one, or its default."""
        parameters = inspect.signature(self.function).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        return {**defaults, **self.given}

    def __call__(self, **spoiled: Any) -> Any:
        arguments, positional = {**self.given, **spoiled}, list[Any]()
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL) and parameter.name in arguments:
                value = arguments.pop(parameter.name)
                positional += value if isinstance(value, tuple) else [value]
        result = self.function(*positional, **arguments)
        return result(_decorated) if self.function in DECORATORS else result


def _decorated(check: ss.Check) -> None:
    """Nothing."""


OPTION_TYPES = {
    name: option.type
    for options in (ClassOptions, ss.TextOptions, ss.FlowOptions, SweepExecution, ss.TrainOptions)
    for name, option in options_of(options).items()
}


@functools.cache
def public_functions() -> dict[str, Callable[..., Any]]:
    """Every public function, and every public class that users make objects of, that takes arguments."""
    classes = {*HOLDERS.split(), *TO_IMPLEMENT.split(), *WRAPPERS}
    return {
        name: value
        for path, value in public_names()
        if (name := path.removeprefix("scansnap.")) not in classes
        and (inspect.isfunction(value) or (inspect.isclass(value) and name in ss.__all__ and not _is_error(value)))
        and inspect.signature(value).parameters
    }


def _is_error(value: type) -> bool:
    return issubclass(value, Exception)


def group_of(function: Callable[..., Any]) -> str:
    """The group of a function, by the package that defines it."""
    package = function.__module__.split(".")[1]
    return next((group for group, packages in GROUPS.items() if package in packages.split()), "runs")


class Noting:
    """A module, class or function that notes the arguments of the calls of what is public in it."""

    def __init__(self, value: Any, name: str, calls: dict[str, Call]) -> None:
        self._value, self._name, self._calls = value, name, calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature = inspect.signature(self._value)
        with contextlib.suppress(TypeError):  # a system has learning rates that no signature states
            given = signature.bind(*args, **kwargs).arguments
            for parameter in signature.parameters.values():
                if parameter.kind is parameter.VAR_KEYWORD:
                    given |= given.pop(parameter.name, {})
            self._calls.setdefault(self._name, Call(self._value, {**given, **CHANGES.get(self._name, {})}))
        return self._value(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        value, inner = getattr(self._value, name), f"{self._name}.{name}".removeprefix(".")
        return Noting(value, inner, self._calls) if inspect.ismodule(value) or inner in public_functions() else value


def good_calls(group: str) -> dict[str, Call]:
    """A good call of every public function and class in a group, and of some methods."""
    calls: dict[str, Call] = {}
    noting = Noting(ss, "", calls)
    functions = {name: value for name, value in public_functions().items() if group_of(value) == group}
    for name, function in functions.items():
        names = {"ss": noting, "np": np, "theory": noting.theory, "__name__": "example"}
        example = doctest.DocTestParser().get_doctest(docstring(f"scansnap.{name}", function), names, name, None, None)
        doctest.DocTestRunner(verbose=False).run(example, out=lambda said: None)
    assert functions.keys() - calls.keys() <= {*PARTS}, "an example does not call its function"
    return {name: calls[name] for name in functions if name in calls} | METHODS.get(group, dict)()


def _data_methods() -> dict[str, Call]:
    classes = ss.syn_small()
    token = int(classes.query[0])
    methods = {
        **{name: {"index": 0} for name in ("support", "distinct_tokens", "local_distinct_tokens")},
        **{name: {"token": token} for name in ("of_query", "next_tokens_of", "name")},
        "local_common_tokens": {"query": token},
        "overlap": {"first": 0, "second": 1},
    }
    lists = {"tokens": [[0, 1], [1, 2]], "probs": [[0.5, 0.5]] * 2, "query": [3, 3], "next_token": [4, 5]}
    return {
        **{name: Call(getattr(classes, name), given) for name, given in methods.items()},
        "from_supports": Call(ss.SequenceClasses.from_supports, {**lists, "vocab_size": 6}),
        "from_parts": Call(ss.PositionedClasses.from_parts, {"sizes": [1, 2], "parts": [classes, classes]}),
    }


def _run_methods() -> dict[str, Call]:
    given = {"name": "own", "dims": ("class",), "compute": len, "needs": ("attention",), "attributes": {}, "coords": {}}
    return {"Quantity": Call(ss.Quantity, given)}


def _text_methods() -> dict[str, Call]:
    given = {"name": "own", "compute": len, "long_name": "own"}
    return {"HeadQuantity": Call(ss.HeadQuantity, given)}


METHODS: Mapping[str, Callable[[], dict[str, Call]]] = {
    "data": _data_methods,
    "runs": _run_methods,
    "text": _text_methods,
}
"""Good calls of methods, and of classes whose objects are made by methods and decorators."""

PARTS = ("PositionedClasses", "Quantity", "HeadQuantity")
"""Classes whose docstrings show another way to make them."""


def _argument_type(function: Callable[..., Any], name: str) -> ArgumentType | None:
    """The type of an argument, if the signature or an option states it."""
    called: Any = function.__init__ if inspect.isclass(function) else function
    validator = getattr(called, "validator", None)
    found = validator.types.get(name) if validator is not None else None
    return found or (None if "theory" in function.__module__ else OPTION_TYPES.get(name))


def call_with_nonsense(calls: Mapping[str, Call], count: int, seed: int) -> Counter[str]:
    """Call functions with other good values of one argument, half of the time with nonsense for another."""
    rng, seen, names = np.random.default_rng(seed), Counter[str](), list(calls)
    for number in range(count):
        name = names[number % len(names)]
        call = calls[name]
        first, second = rng.choice(list(call.arguments), 2).tolist()
        changed = {first: good(_argument_type(call.function, first), call.arguments[first], rng)}
        if rng.random() < 0.5:
            changed[second] = nonsense(rng)
        words = ", ".join(f"{argument}={short_repr(value)}" for argument, value in changed.items())
        seen[attempt(lambda: call(**changed), f"{name}({words})")] += 1  # noqa: B023
    return seen


def _never(*_: object, **__: object) -> None:
    raise InputError("the arguments are good, and the work is long.")


def stop_before_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only small runs start: the rest of their arguments were good, and they would take hours."""
    from scansnap.dynamics import flow, sweep, train, yz_flow
    from scansnap.text.train import TextTraining
    from scansnap.theory import reduced_dynamics

    def only_small(run: Callable[..., Any], size: Callable[[Any], float]) -> Callable[..., Any]:
        return lambda work, *more: _never() if size(work) > 1000 else run(work, *more)

    def updates(work: Any) -> float:
        options = work.options
        length = min(options.seq_len, 1) if options.seq_len > 1e300 else options.seq_len
        sizes = (options.steps, options.batch_size or 1, options.heads * options.layers, options.num_sequences or 1)
        return max(*sizes, length, len(options.runs))

    flowing = only_small(flow.flow_runs, lambda work: max(len(work.options.times), len(work.options.runs)))
    monkeypatch.setattr(train, "train_runs", only_small(train.train_runs, updates))
    monkeypatch.setattr(flow, "flow_runs", flowing)
    monkeypatch.setattr(TextTraining, "run", only_small(TextTraining.run, lambda work: work.record_schedule.steps))
    monkeypatch.setattr(yz_flow, "MOST_EVALUATIONS", 2000)
    monkeypatch.setattr(reduced_dynamics, "MOST_EVALUATIONS", 2000)
    monkeypatch.setattr("scansnap.data.synthetic.MOST_TOKENS", 10_000)
    monkeypatch.setattr("scansnap.data.positioned_classes.MOST_POSITIONS", 100)
    monkeypatch.setattr(sweep, "physical_memory", lambda: 2**24)
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for whole in ("report.reproduce.UnfinishedFigures", "report.reproduce.reproduce"):
        monkeypatch.setattr(f"scansnap.{whole}", _never)
