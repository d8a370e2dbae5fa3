"""A good call of every public name, which the fuzzers then spoil argument by argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap import theory
from scansnap.dynamics.options import SweepExecution
from scansnap.results import measure, metrics
from scansnap.runtime.errors import InputError
from scansnap.validation.options import values_of
from tests.monitor.small_models import GPT
from tests.small_text import SMALL, small_corpus

PROBS = np.array([[0.5, 0.3, 0.2, 0.0], [0.2, 0.5, 0.0, 0.3], [0.1, 0.0, 0.6, 0.3]])
DIRECTIONS = theory.directions(PROBS)
OVERLAPS = theory.overlaps(DIRECTIONS)

THEORY: Mapping[str, Any] = {
    "atol": 1e-8,
    "attention": PROBS,
    "beta": OVERLAPS,
    "bias": [0.1, 0.2],
    "bound": 0.4,
    "classes": ss.syn_small(),
    "classes_per_query": None,
    "common_probs": [0.5],
    "constant": 2.0,
    "counts": [3.0, 1.0, 2.0],
    "decoder": np.ones((4, 20)),
    "decoder_gradient": "true",
    "direction": DIRECTIONS,
    "distinct_probs": [0.5],
    "drive": 1.0,
    "failure": 0.1,
    "form": "exact",
    "growth": 0.2,
    "init": "zeros",
    "initial_direction": 0.2,
    "initial_gain": 0.4,
    "initial_logit": 0.0,
    "logit": 0.0,
    "logits": 0.0,
    "lr_y": 0.5,
    "lr_z": 0.1,
    "mean_count": 9.0,
    "measured": theory.measured_gradient(DIRECTIONS, np.eye(4, 20), next_token=[0, 1, 2]),
    "momentum": 0.0,
    "next_token": [0, 1, 2],
    "num_classes": 3,
    "num_sequences": 5,
    "num_steps": 9,
    "optimizer": "sgd",
    "other_logit": 0.0,
    "other_prob": 0.2,
    "overlap": OVERLAPS,
    "part_probs": [[0.2, 0.4]],
    "prob": 0.4,
    "probs": PROBS,
    "query": [1, 3, 1],
    "radius": 2.0,
    "residual": 0.1,
    "rtol": 1e-6,
    "seq_len": 9,
    "sigma": 0.0,
    "sizes": [1, 2],
    "speed": 1.0,
    "steps": 3,
    "t": 5.0,
    "tau": [1.0],
    "theta": 0.0,
    "times": [1.0],
    "token": 0,
    "tolerance": 1e-9,
    "vocab_size": 20,
    "weight": 1.0,
    "weights": [0.2, 0.3, 0.5],
}
"""Good arguments of the theory's functions: one name means the same thing everywhere."""

EXCEPT: Mapping[str, Mapping[str, Any]] = {
    "decoder": {"logits": np.ones((3, 20))},
    "dominant": {"probs": [0.4, 0.3]},
    "phase_constant": {"overlap": 0.2, "form": "leading"},
    "shared_overlap_logits": {"overlap": 0.2},
    "shared_overlap_rate": {"overlap": 0.2},
}
"""Almost everywhere."""


@dataclass(frozen=True)
class Call:
    """A function with good arguments."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]

    def __call__(self, **spoiled: Any) -> Any:
        arguments = {**self.arguments, **spoiled}
        first, *others = inspect.signature(self.function).parameters.values()
        named = first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD)
        positional = [*([] if named else [first]), *(p for p in others if p.kind is p.POSITIONAL_ONLY)]
        values = [arguments.pop(parameter.name) for parameter in positional]
        return self.function(*values, **arguments)


def call(function: Callable[..., Any], **given: Any) -> Call:
    """A call with the arguments given, and the defaults of the others."""
    parameters = inspect.signature(function).parameters.values()
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty and p.kind not in variadic}
    required = {p.name for p in parameters if p.default is p.empty and p.kind not in variadic}
    assert required <= given.keys(), f"{function.__qualname__} needs {required - given.keys()}"
    return Call(function, {**given, **{name: value for name, value in defaults.items() if name not in given}})


def theory_calls() -> dict[str, Call]:
    """Every function of `scansnap.theory`."""
    functions = {name: value for name, value in vars(theory).items() if inspect.isfunction(value)}
    return {
        f"theory.{name}": Call(
            function, {p: EXCEPT.get(name, {}).get(p, THEORY[p]) for p in inspect.signature(function).parameters}
        )
        for name, function in functions.items()
    }


RATES: Mapping[str, Any] = {"lr_y": 1.0, "lr_z": 1.0}
TRAIN: Mapping[str, Any] = {**RATES, "steps": 1, "batch_size": 2, "seq_len": 4, "record": "loss"}
FLOW: Mapping[str, Any] = {**RATES, "times": [1.0], "rtol": 1e-4, "atol": 1e-4, "record": "loss"}


def data_calls(folder: Path) -> dict[str, Call]:
    """Classes, files, samples and named settings."""
    classes, options = ss.syn_small(), ss.TrainOptions(**RATES, steps=1)
    query = int(classes.query[0])
    file = ss.write_classes(classes, folder / "classes.toml")
    setting = ss.write_experiment("syn-small", options, folder / "experiment.toml")
    two: dict[str, Any] = {"query": [3, 3], "next_token": [4, 5], "vocab_size": 6, "weights": [0.5, 0.5]}
    two["token_names"] = list("abcdef")
    probs, dense = [[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0]]
    return {
        "SequenceClasses": call(ss.SequenceClasses, probs=dense, **two),
        "SequenceClasses.from_supports": call(
            ss.SequenceClasses.from_supports, tokens=[[0, 1], [1, 2]], probs=probs, **two
        ),
        "SequenceClasses.support": call(classes.support, index=0),
        "SequenceClasses.of_query": call(classes.of_query, token=query),
        "SequenceClasses.next_tokens_of": call(classes.next_tokens_of, token=0),
        "SequenceClasses.distinct_tokens": call(classes.distinct_tokens, index=0),
        "SequenceClasses.local_common_tokens": call(classes.local_common_tokens, query=query),
        "SequenceClasses.local_distinct_tokens": call(classes.local_distinct_tokens, index=0),
        "SequenceClasses.overlap": call(classes.overlap, first=0, second=1),
        "SequenceClasses.name": call(classes.name, token=0),
        "PositionedClasses.from_parts": call(ss.PositionedClasses.from_parts, sizes=[1, 2], parts=[classes, classes]),
        "synthetic": call(ss.synthetic, num_query=2, next_per_query=1, num_common=1, num_distinct=1),
        "syn_medium": call(ss.syn_medium, num_query=1),
        "local_common": call(ss.local_common, num_distinct=2, vocab_size=40),
        "single_common": call(ss.single_common, num_classes=2, num_distinct=2, vocab_size=40),
        "near_distinct": call(ss.near_distinct, num_positions=2, num_query=1, num_common=1, num_distinct=1),
        "named_classes": call(ss.named_classes, name="syn-small"),
        "read_classes": call(ss.read_classes, path=file),
        "write_classes": call(ss.write_classes, classes=classes, path=folder / "again.json"),
        "read_experiment": call(ss.read_experiment, path=setting),
        "read_sweep": call(ss.read_sweep, path=setting),
        "write_experiment": call(ss.write_experiment, classes="syn-small", options=options, path=folder / "e.toml"),
        "sample_counts": call(ss.sample_counts, source=classes, num=2, seq_len=4, seed=0),
        "sample_sequences": call(ss.sample_sequences, source=classes, num=2, seq_len=4, seed=0),
        "read_claims": call(ss.read_claims, path=folder / "claims.py"),
    }


def run_calls(folder: Path) -> dict[str, Call]:
    """What trains, integrates, sweeps and verifies."""
    training = {**call(ss.train, classes="", **TRAIN).arguments, "progress": False}
    del training["classes"]
    return {
        "train": Call(ss.train, {"classes": "syn-small", **training}),
        "flow": call(ss.flow, classes="syn-small", **FLOW, progress=False),
        "sweep": Call(
            ss.sweep,
            {"classes": "syn-small", **training, "lr_y_over_lr_z": None, **values_of(SweepExecution(retries=0))},
        ),
        "TrainOptions": call(ss.TrainOptions, **TRAIN),
        "FlowOptions": call(ss.FlowOptions, **FLOW),
        "explore": call(ss.explore, classes="syn-small", lr_y=1.0),
        "verify": Call(
            lambda ids, **kwargs: ss.verify(ids, **kwargs),
            {**call(ss.verify).arguments, "ids": "lemma_6", "progress": False},
        ),
        "compare_gradients": call(ss.compare_gradients, classes="syn-small", heads=1, residual=False),
        "YZTransformer": call(ss.YZTransformer, vocab_size=5, heads=1),
        "RegularTransformer": call(ss.RegularTransformer, vocab_size=5, width=3),
        "SGD": call(ss.SGD),
        "Adam": call(ss.Adam),
    }


def result_calls(folder: Path) -> dict[str, Call]:
    """What is done with results."""
    small: dict[str, Any] = {"steps": 3, "batch_size": 2, "seq_len": 4}
    result = ss.train("syn-small", **RATES, **small)
    grid = ss.sweep("syn-small", lr_y=[1, 2], lr_z=[1, 2], **small, record_every=1, record=["loss", "attention"])
    store = ss.save(result, folder / "result.zarr")
    whole = ("distinct_entropy", "distinctness", "favored", "favored_entropy", "sparsity")
    whole += ("rate_of_change", "snaps", "record_dimension")
    return {
        **{f"measure.{name}": call(getattr(measure, name), dataset=result) for name in whole},
        "measure.one_head": call(measure.one_head, dataset=result),
        "measure.top_k_mass": call(measure.top_k_mass, dataset=result, k=1),
        "plot.attention": call(ss.plot.attention, result=result),
        "plot.claim": call(ss.plot.claim, verdict=ss.verify("lemma_6")[0]),
        "metrics.entropy": call(metrics.entropy, weights=[0.5, 0.5]),
        "metrics.top_k_mass": call(metrics.top_k_mass, attention=[0.5, 0.5], k=1),
        "metrics.sparsity": call(metrics.sparsity, attention=[0.5, 0.5]),
        "metrics.rate_of_change": call(metrics.rate_of_change, attention=np.ones((2, 3)), times=[0, 1]),
        "phase_diagram": call(ss.phase_diagram, result=grid, x="lr_y", y="lr_z", color="loss"),
        "figure": call(ss.figure, name="8"),
        "reproduce": call(ss.reproduce, folder=folder / "page", figures=[], claims=["lemma_6"], progress=False),
        "load": call(ss.load, path=store),
        "check_store": call(ss.check_store, path=store),
        "save": call(ss.save, dataset=result, path=folder / "saved.zarr", overwrite=True),
        "quantity": Call(
            lambda dim, **kwargs: ss.quantity(dim, **kwargs)(metrics.entropy),
            {**call(ss.quantity, needs="attention", long_name="x", units="1").arguments, "dim": "class"},
        ),
        "Quantity": call(
            ss.Quantity, name="x", dims=("class",), compute=len, needs=("attention",), attributes={}, coords={}
        ),
        "claim": Call(
            lambda **kwargs: ss.claim(**kwargs)(_check), call(ss.claim, statement="x", where="here").arguments
        ),
    }


def _check(check: ss.Check) -> None:
    """Nothing."""


def text_calls(folder: Path) -> dict[str, Call]:
    """Text, counts and watches."""
    corpus = small_corpus(folder)
    counts = ss.count_corpus(corpus, output=folder / "counts", progress=False)
    prediction = ss.predict(corpus, queries=2, least=1)
    labelled = [{"text": f"{word} film", "mood": mood} for word, mood in (("great", "good"), ("dull", "bad"))] * 30
    model, probe = GPT(layers=1), torch.zeros((1, 5), dtype=torch.int64)
    watch = ss.watch(model, probe=probe)
    watch.snapshot()
    options = ss.TextOptions(steps=1, **SMALL)
    quantity: dict[str, Any] = {"long_name": "x", "units": "1", "reduction": "mean", "sample": "probe"}
    return {
        "read_corpus": call(ss.read_corpus, source=folder, min_count=1, progress=False),
        "count_corpus": call(ss.count_corpus, corpus=corpus, output=folder / "counts", progress=False),
        "read_counts": call(ss.read_counts, path=folder / "counts"),
        "Counts.token": call(counts.token, word="cat"),
        "Counts.of": call(counts.of, query="cat"),
        "Counts.files": call(counts.files, table="pairs"),
        "classes_from_counts": call(ss.classes_from_counts, counts=counts, queries=2, next_tokens=2, tokens=5),
        "predict": call(ss.predict, text=corpus, queries=2, tokens=20, least=1, window=8, progress=False),
        "score_prediction": call(ss.score_prediction, prediction=prediction, gains=prediction["gain"].values, top=3),
        "shortcuts": call(ss.shortcuts, source=labelled, text="text", label="mood", progress=False),
        "Counts.dataset": call(counts.dataset, queries=["cat"], tokens=5, next_tokens=5),
        "text_training": call(ss.text_training, corpus=corpus, options=options),
        "train_text": Call(ss.train_text, {"corpus": corpus, **values_of(options), "store": None, "progress": False}),
        "watch": call(ss.watch, model=model, probe=probe, record=("entropy",), rows=4),
        "write_watch_page": call(ss.write_watch_page, page=folder / "looks.html", dataset=watch.dataset),
        "judge_heads": call(ss.judge_heads, dataset=watch.dataset),
        "head_quantity": Call(lambda **kwargs: ss.head_quantity(**kwargs)(_check), quantity),
        "HeadQuantity": call(ss.HeadQuantity, name="x", compute=len, **quantity),
        "head_verdict": Call(
            lambda **kwargs: ss.head_verdict(**kwargs)(_check), {"severity": "notice", "needs": "entropy"}
        ),
    }


def _never(*_: object, **__: object) -> None:
    raise InputError("the arguments are good, and the work is long.")


def stop_before_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only small runs start: the rest of their arguments were good, and they would take hours."""
    from scansnap.dynamics import flow, sweep, train, yz_flow
    from scansnap.text.train import TextTraining
    from scansnap.theory import reduced_dynamics

    def only_small(run: Callable[..., Any], size: Callable[[Any], float]) -> Callable[..., Any]:
        def start(work: Any, *more: Any) -> Any:
            if size(work) > 1000:
                _never()
            return run(work, *more)

        return start

    def updates(work: Any) -> float:
        options = work.options
        length = min(options.seq_len, 1) if options.seq_len > 1e300 else options.seq_len
        return max(
            options.steps,
            options.batch_size or 1,
            options.heads * options.layers,
            options.num_sequences or 1,
            length,
            len(options.runs),
        )

    flowing = only_small(flow.flow_runs, lambda work: max(len(work.options.times), len(work.options.runs)))
    monkeypatch.setattr(train, "train_runs", only_small(train.train_runs, updates))
    monkeypatch.setattr(flow, "flow_runs", flowing)
    monkeypatch.setattr(TextTraining, "run", only_small(TextTraining.run, lambda work: work.record_schedule.steps))
    monkeypatch.setattr(yz_flow, "MOST_EVALUATIONS", 2000)
    monkeypatch.setattr(reduced_dynamics, "MOST_EVALUATIONS", 2000)
    monkeypatch.setattr(sweep, "physical_memory", lambda: 2**24)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for whole in ("report.reproduce.reproduce", "report.reproduce.verify", "monitor.demo.train_demo"):
        monkeypatch.setattr(f"scansnap.{whole}", _never)
