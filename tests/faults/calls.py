"""A good call of every public function and class, which the fuzzers then spoil argument by argument.

What is called, and the types of arguments, follow from the public names, their signatures and the declared options.
Only arguments without a default need an example: by their name, or as `function.name` where one means something else.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap import theory
from scansnap.corpus.predictors import PredictOptions
from scansnap.dynamics.options import SweepExecution
from scansnap.figures import plot
from scansnap.results import measure, metrics
from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.options import options_of, values_of
from tests.faults.values import attempt, example, good, nonsense
from tests.monitor.small_models import GPT
from tests.small_text import SMALL, small_corpus

PROBS = np.array([[0.5, 0.3, 0.2, 0.0], [0.2, 0.5, 0.0, 0.3], [0.1, 0.0, 0.6, 0.3]])
DIRECTIONS = theory.directions(PROBS)
OVERLAPS = theory.overlaps(DIRECTIONS)

THEORY: Mapping[str, Any] = {
    "attention": PROBS,
    "beta": OVERLAPS,
    "bias": [0.1, 0.2],
    "classes": ss.syn_small(),
    "common_probs": [0.5],
    "counts": [3.0, 1.0, 2.0],
    "decoder": np.ones((4, 20)),
    "decoder.logits": np.ones((3, 20)),
    "direction": DIRECTIONS,
    "distinct_probs": [0.5],
    "dominant.probs": [0.4, 0.3],
    "measured": theory.measured_gradient(DIRECTIONS, np.eye(4, 20), next_token=[0, 1, 2]),
    "next_token": [0, 1, 2],
    "num_classes": 3,
    "num_sequences": 5,
    "num_steps": 9,
    "overlap": OVERLAPS,
    "part_probs": [[0.2, 0.4]],
    "phase_constant.overlap": 0.2,
    "phase_constant.form": "leading",
    "probs": PROBS,
    "query": [1, 3, 1],
    "seq_len": 9,
    "shared_overlap_logits.overlap": 0.2,
    "shared_overlap_rate.overlap": 0.2,
    "sizes": [1, 2],
    "steps": 3,
    "tau": [1.0],
    "times": [1.0],
    "token": 0,
    "vocab_size": 20,
    "weights": [0.2, 0.3, 0.5],
}
"""Good arguments of the theory's functions."""

MOODS = (("great", "good"), ("dull", "bad"))
RUN: Mapping[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 1, "batch_size": 2, "seq_len": 4, "record": "loss"}

CLAIMS = """
import scansnap as ss

@ss.claim("One is one.", where="here")
def one_is_one(check):
    "By comparison."
    check.equal("one", 1.0, 1.0, tolerance=1.0)
"""

HOLDERS = """
    Check Claim Counts Curve Draw Experiment FigureRecipe FigureResult Finding HeadHistory HeadVerdict Rows Setting
    Block Preset Shortcuts Snapshot State TokenRows Trend Update Verdict Watch
"""
"""Classes that hold what the package itself computes."""

TO_IMPLEMENT = """
    Addition AttentionMap DataSource Normalization Predictor Reading Schedule System UpdateRule TokenSelection NextToken
"""
"""Classes that users subclass or imitate."""

SAME_AS = {"LightningWatch": "watch", "TrainerWatch": "watch", "PositionedClasses": "PositionedClasses.from_parts"}
"""Names whose arguments are another's."""

GROUPS = {
    "theory": "theory",
    "data": "data",
    "results": "results figures report",
    "text": "corpus text monitor shortcuts",
}
"""Packages whose functions are called together; the others are "runs"."""

OMITTED = object()
DECORATORS = (ss.claim, ss.quantity, ss.head_quantity, ss.head_verdict)


@dataclass(frozen=True)
class Call:
    """A function with good arguments."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]

    def __call__(self, **spoiled: Any) -> Any:
        arguments, positional = {**self.arguments, **spoiled}, []
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL) and parameter.name in arguments:
                positional.append(arguments.pop(parameter.name))
        result = self.function(*positional, **arguments)
        return result(_decorated) if self.function in DECORATORS else result


def _decorated(check: ss.Check) -> None:
    """Nothing."""


OPTION_TYPES = {
    name: option.type
    for options in (PredictOptions, ss.TextOptions, ss.FlowOptions, SweepExecution, ss.TrainOptions)
    for name, option in options_of(options).items()
}


def public_functions() -> dict[str, Callable[..., Any]]:
    """Every public function that takes arguments."""
    public = {name: getattr(ss, name) for name in ss.__all__}
    for module in (theory, measure, metrics, plot):
        prefix = module.__name__.rpartition(".")[2]
        public |= {
            f"{prefix}.{name}": value
            for name, value in vars(module).items()
            if getattr(value, "__module__", "").startswith(module.__name__) and name[0] != "_"
        }
    return {
        name: value
        for name, value in public.items()
        if name not in SAME_AS and inspect.isfunction(value) and inspect.signature(value).parameters
    }


def public_classes() -> dict[str, Callable[..., Any]]:
    """Every public class that users make objects of."""
    others = {*HOLDERS.split(), *TO_IMPLEMENT.split(), *SAME_AS, "InputError", "ScanSnapError", "StoreError"}
    public = {name: getattr(ss, name) for name in set(ss.__all__) - others}
    return {name: value for name, value in sorted(public.items()) if inspect.isclass(value)}


def group_of(function: Callable[..., Any]) -> str:
    """The group of a function, by the package that defines it."""
    package = function.__module__.split(".")[1]
    return next((group for group, packages in GROUPS.items() if package in packages.split()), "runs")


def good_calls(group: str, folder: Path) -> dict[str, Call]:
    """A good call of every public function and class in a group, and of some methods."""
    examples, more = EXAMPLES[group](folder)
    functions = {**public_functions(), **public_classes(), **more}
    found = {name: function for name, function in functions.items() if name in more or group_of(function) == group}
    return {name: Call(function, _arguments(function, name, examples)) for name, function in found.items()}


def _arguments(function: Callable[..., Any], name: str, examples: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function: the example for it alone, its default, the example for all, or one by its type."""
    arguments, short = {}, name.rpartition(".")[2]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= examples.get(f"{short}.{parameter.name}", {})
            continue
        default = None if parameter.default is parameter.empty else parameter.default
        if default is None and parameter.default is not None:
            default = examples.get(parameter.name, example(_argument_type(function, parameter.name)))
        value = examples.get(f"{short}.{parameter.name}", default)
        assert value is not None or parameter.default is None, f"{name} needs an example of {parameter.name}"
        if value is not OMITTED:
            arguments[parameter.name] = value
    return arguments


def _argument_type(function: Callable[..., Any], name: str) -> ArgumentType | None:
    """The type of an argument, if the signature or an option states it."""
    called: Any = function.__init__ if inspect.isclass(function) else function
    validator = getattr(called, "validator", None)
    found = validator.types.get(name) if validator is not None else None
    return found or (None if "theory" in function.__module__ else OPTION_TYPES.get(name))


Examples = tuple[dict[str, Any], dict[str, Callable[..., Any]]]
"""Good arguments, and what is called besides public functions and classes."""


def data_examples(folder: Path) -> Examples:
    classes = ss.syn_small()
    methods = "support of_query next_tokens_of distinct_tokens local_common_tokens local_distinct_tokens overlap name"
    examples = {
        "SequenceClasses.query": [3, 3],
        "from_supports.query": [3, 3],
        "from_supports.probs": [[0.5, 0.5], [0.5, 0.5]],
        "from_supports.tokens": [[0, 1], [1, 2]],
        "next_token": [4, 5],
        "vocab_size": 6,
        "probs": [[0.5, 0.5, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0]],
        "index": 0,
        "name": "syn-small",
        "token": int(classes.query[0]),
        "query": int(classes.query[0]),
        "first": 0,
        "second": 1,
        "sizes": [1, 2],
        "parts": [classes, classes],
        "num_query": 2,
        "next_per_query": 1,
        "classes": classes,
        "source": classes,
        "num": 2,
        "seq_len": 4,
        "path": ss.write_classes(classes, folder / "classes.toml"),
        "write_classes.path": folder / "again.json",
    }
    called = {f"SequenceClasses.{name}": getattr(classes, name) for name in methods.split()}
    called["SequenceClasses.from_supports"] = ss.SequenceClasses.from_supports
    return examples, {**called, "PositionedClasses.from_parts": ss.PositionedClasses.from_parts}


def run_examples(folder: Path) -> Examples:
    options = ss.TrainOptions(**RUN)
    (folder / "claims.py").write_text(CLAIMS)
    examples = {
        **RUN,
        "classes": "syn-small",
        "times": [1.0],
        "path": ss.write_experiment("syn-small", options, folder / "experiment.toml"),
        "read_claims.path": folder / "claims.py",
        "write_experiment.path": folder / "e.toml",
        "options": options,
        "sweep.steps": 1,
        **{f"sweep.{name}": OMITTED for name in ("times", "rtol", "atol")},  # of flows
        "ids": "lemma_6",
        "explore.kwargs": {"lr_y": 1.0},
        "compare_gradients.layer": {"heads": 1, "residual": False},
        "vocab_size": 5,
        "dims": "class",
        "Quantity.dims": ("class",),
        "Quantity.needs": ("attention",),
        "Quantity.attributes": {},
        "Quantity.coords": {},
    }
    return examples, {}


def result_examples(folder: Path) -> Examples:
    small: dict[str, Any] = {"steps": 3, "batch_size": 2, "seq_len": 4}
    result = ss.train("syn-small", lr_y=1.0, lr_z=1.0, **small)
    text = ss.train_text(small_corpus(folder), steps=1, **SMALL)
    examples = {
        "dataset": result,
        "result": result,
        "phase_diagram.result": ss.sweep("syn-small", lr_y=[1, 2], lr_z=[1, 2], **small, record="loss"),
        "phase_diagram.color": "loss",
        "text.result": text,
        "words.result": text,
        "verdict": ss.verify("lemma_6")[0],
        "weights": [0.5, 0.5],
        "attention": [0.5, 0.5],
        "rate_of_change.attention": np.ones((2, 3)),
        "times": [0, 1],
        "steps": [0, 1, 2, 3],
        "moved": [0, 0.5, 0.1, 0.0],
        "name": "8",
        "path": ss.save(result, folder / "result.zarr"),
        "save.path": folder / "saved.zarr",
        "save.overwrite": True,
        "reproduce.figures": [],
        "reproduce.claims": ["lemma_6"],
        "page": folder / "snapshots.html",
        "write_watch_page.dataset": _watch().dataset,
    }
    return examples, {}


def _watch() -> ss.Watch:
    watch = ss.watch(GPT(layers=1), probe=torch.zeros((1, 5), dtype=torch.int64))
    watch.snapshot()
    return watch


def text_examples(folder: Path) -> Examples:
    corpus = small_corpus(folder)
    counts = ss.count_corpus(corpus, output=folder / "counts", progress=False)
    prediction = ss.predict(corpus, queries=2, least=1)
    options = ss.TextOptions(steps=1, **SMALL)
    examples = {
        "corpus": corpus,
        "source": folder,
        "shortcuts.source": [{"text": f"{word} film", "mood": mood} for word, mood in MOODS] * 30,
        "shortcuts.text": "text",
        "shortcuts.label": "mood",
        "counts": counts,
        "path": folder / "counts",
        "word": "cat",
        "query": "cat",
        "queries": ["cat"],
        "table": "pairs",
        "tokens": 5,
        "next_tokens": 5,
        "text": corpus,
        "least": 1,
        "prediction": prediction,
        "gains": prediction["gain"].values,
        "options": options,
        **{f"train_text.{name}": value for name, value in values_of(options).items()},
        **{f"train_text.{name}": OMITTED for name in ("residual", "dtype", "queries")},  # of the other model
        "model": GPT(layers=1),
        "probe": torch.zeros((1, 5), dtype=torch.int64),
        "dataset": _watch().dataset,
        "severity": "notice",
        "needs": "entropy",
    }
    return examples, {f"Counts.{name}": getattr(counts, name) for name in ("token", "of", "files", "dataset")}


EXAMPLES: Mapping[str, Callable[[Path], Examples]] = {
    "theory": lambda folder: (dict(THEORY), {}),
    "data": data_examples,
    "runs": run_examples,
    "results": result_examples,
    "text": text_examples,
}


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
    for whole in ("report.reproduce.UnfinishedFigures", "report.reproduce.reproduce", "monitor.demo.train_demo"):
        monkeypatch.setattr(f"scansnap.{whole}", _never)
