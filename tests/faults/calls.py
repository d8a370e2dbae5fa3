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
from scansnap.results import measure, metrics
from scansnap.runtime.errors import InputError
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
    """A function with good arguments; the first `positional` of them have no name in the call."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    positional: int = 0

    def __call__(self, **spoiled: Any) -> Any:
        arguments = {**self.arguments, **spoiled}
        first = [arguments.pop(name) for name in list(self.arguments)[: self.positional]]
        return self.function(*first, **arguments)


def theory_calls() -> dict[str, Call]:
    """Every function of `scansnap.theory`."""
    functions = {name: value for name, value in vars(theory).items() if inspect.isfunction(value)}
    return {
        f"theory.{name}": Call(
            function, {p: EXCEPT.get(name, {}).get(p, THEORY[p]) for p in inspect.signature(function).parameters}
        )
        for name, function in functions.items()
    }


TRAIN: Mapping[str, Any] = {
    "lr_y": 1.0,
    "lr_z": 1.0,
    "seeds": 0,
    "steps": 1,
    "batch_size": 2,
    "seq_len": 4,
    "num_sequences": None,
    "optimizer": "sgd",
    "momentum": None,
    "record_every": 1,
    "dtype": "float32",
    "device": "cpu",
    "normalization": "l2",
    "residual": False,
    "attention_map": "softmax",
    "heads": 1,
    "decoder_gradient": "true",
    "init": "zeros",
    "init_scale_z": 1.0,
    "attention_prior": None,
    "position_bias": None,
    "learn_position_bias": False,
    "layers": 1,
    "nonlinearity": "tanh",
    "record": "loss",
    "store": None,
    "progress": False,
}
FLOW: Mapping[str, Any] = {
    "lr_y": 1.0,
    "lr_z": 1.0,
    "seeds": 0,
    "times": [1.0],
    "rtol": 1e-4,
    "atol": 1e-4,
    "normalization": "l2",
    "residual": False,
    "attention_map": "softmax",
    "heads": 1,
    "decoder_gradient": "true",
    "init": "zeros",
    "init_scale_z": 1.0,
    "attention_prior": None,
    "position_bias": None,
    "learn_position_bias": False,
    "record": "loss",
    "store": None,
    "progress": False,
}


def data_calls(folder: Path) -> dict[str, Call]:
    """Classes, files, samples and named settings."""
    classes = ss.syn_small()
    file = ss.write_classes(classes, folder / "classes.toml")
    setting = ss.write_experiment("syn-small", ss.TrainOptions(lr_y=1, lr_z=1, steps=1), folder / "experiment.toml")
    three = {
        "query": [3, 3],
        "next_token": [4, 5],
        "vocab_size": 6,
        "weights": [0.5, 0.5],
        "token_names": list("abcdef"),
    }
    return {
        "SequenceClasses": Call(
            ss.SequenceClasses, {"probs": [[0.5, 0.5, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0]], **three}
        ),
        "SequenceClasses.from_supports": Call(
            ss.SequenceClasses.from_supports, {"tokens": [[0, 1], [1, 2]], "probs": [[0.5, 0.5], [0.5, 0.5]], **three}
        ),
        "SequenceClasses.support": Call(classes.support, {"index": 0}),
        "SequenceClasses.of_query": Call(classes.of_query, {"token": int(classes.query[0])}),
        "SequenceClasses.next_tokens_of": Call(classes.next_tokens_of, {"token": 0}),
        "SequenceClasses.distinct_tokens": Call(classes.distinct_tokens, {"index": 0}),
        "SequenceClasses.local_common_tokens": Call(classes.local_common_tokens, {"query": int(classes.query[0])}),
        "SequenceClasses.local_distinct_tokens": Call(classes.local_distinct_tokens, {"index": 0}),
        "SequenceClasses.overlap": Call(classes.overlap, {"first": 0, "second": 1}),
        "SequenceClasses.name": Call(classes.name, {"token": 0}),
        "PositionedClasses.from_parts": Call(
            ss.PositionedClasses.from_parts, {"sizes": [1, 2], "parts": [classes, classes]}
        ),
        "synthetic": Call(
            ss.synthetic,
            {"num_query": 2, "next_per_query": 1, "num_common": 1, "num_distinct": 1, "vocab_size": None},
        ),
        "syn_medium": Call(ss.syn_medium, {"num_query": 1}),
        "local_common": Call(ss.local_common, {"num_distinct": 2, "vocab_size": 40, "shared": 1.0, "common": 1.0}),
        "single_common": Call(ss.single_common, {"num_classes": 2, "num_distinct": 2, "vocab_size": 40}),
        "near_distinct": Call(
            ss.near_distinct,
            {
                "num_positions": 2,
                "num_query": 1,
                "next_per_query": 2,
                "num_common": 1,
                "num_distinct": 1,
                "near": 0.5,
                "decay": 0.7,
            },
        ),
        "named_classes": Call(ss.named_classes, {"name": "syn-small", "folder": None}),
        "read_classes": Call(ss.read_classes, {"path": file}),
        "write_classes": Call(ss.write_classes, {"classes": classes, "path": folder / "again.json"}),
        "read_experiment": Call(ss.read_experiment, {"path": setting}),
        "read_sweep": Call(ss.read_sweep, {"path": setting}),
        "write_experiment": Call(
            ss.write_experiment,
            {"classes": "syn-small", "options": ss.TrainOptions(lr_y=1, lr_z=1, steps=1), "path": folder / "e.toml"},
        ),
        "sample_counts": Call(ss.sample_counts, {"source": classes, "num": 2, "seq_len": 4, "seed": 0}),
        "sample_sequences": Call(ss.sample_sequences, {"source": classes, "num": 2, "seq_len": 4, "seed": 0}),
        "read_claims": Call(ss.read_claims, {"path": folder / "claims.py"}),
    }


def run_calls(folder: Path) -> dict[str, Call]:
    """What trains, integrates, sweeps and verifies."""
    words = {name: value for name, value in TRAIN.items() if name not in ("store", "progress")}
    return {
        "train": Call(ss.train, {"classes": "syn-small", **TRAIN}, 1),
        "flow": Call(ss.flow, {"classes": "syn-small", **FLOW}, 1),
        "sweep": Call(
            ss.sweep,
            {"classes": "syn-small", **TRAIN, "lr_y_over_lr_z": None, "memory": None, "shard_size": None, "retries": 0},
            1,
        ),
        "TrainOptions": Call(ss.TrainOptions, words),
        "FlowOptions": Call(ss.FlowOptions, {n: v for n, v in FLOW.items() if n not in ("store", "progress")}),
        "explore": Call(ss.explore, {"classes": "syn-small", "options": None, "height": 900, "lr_y": 1.0}, 2),
        "verify": Call(
            ss.verify,
            {
                "ids": "lemma_6",
                "claims": None,
                "classes": None,
                "lr_y": None,
                "lr_z": None,
                "progress": False,
                "on_verdict": None,
            },
            1,
        ),
        "compare_gradients": Call(
            ss.compare_gradients, {"classes": "syn-small", "seed": 0, "scale": 1.0, "heads": 1, "residual": False}
        ),
        "YZTransformer": Call(ss.YZTransformer, {"vocab_size": 5, "dtype": torch.float32, "heads": 1}),
        "RegularTransformer": Call(
            ss.RegularTransformer, {"vocab_size": 5, "width": 3, "dtype": torch.float32, "seed": 0}
        ),
        "SGD": Call(ss.SGD, {"momentum": 0.0}),
        "Adam": Call(ss.Adam, {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-8}),
    }


def result_calls(folder: Path) -> dict[str, Call]:
    """What is done with results."""
    result = ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=3, batch_size=2, seq_len=4)
    grid = ss.sweep(
        "syn-small",
        lr_y=[1, 2],
        lr_z=[1, 2],
        steps=3,
        batch_size=2,
        seq_len=4,
        record_every=1,
        record=["loss", "attention"],
    )
    store = ss.save(result, folder / "result.zarr")
    return {
        **{
            f"measure.{name}": Call(getattr(measure, name), {"dataset": result})
            for name in ("distinct_entropy", "distinctness", "favored", "favored_entropy", "sparsity")
        },
        **{
            f"measure.{name}": Call(getattr(measure, name), {"dataset": result})
            for name in ("rate_of_change", "snaps", "record_dimension")
        },
        "measure.one_head": Call(measure.one_head, {"dataset": result, "layer": 0, "head": 0}),
        "measure.top_k_mass": Call(measure.top_k_mass, {"dataset": result, "k": 1}),
        "plot.attention": Call(ss.plot.attention, {"result": result, "run": 0}),
        "plot.claim": Call(ss.plot.claim, {"verdict": ss.verify("lemma_6")[0]}),
        "metrics.entropy": Call(metrics.entropy, {"weights": [0.5, 0.5]}),
        "metrics.top_k_mass": Call(metrics.top_k_mass, {"attention": [0.5, 0.5], "k": 1}),
        "metrics.sparsity": Call(metrics.sparsity, {"attention": [0.5, 0.5]}),
        "metrics.rate_of_change": Call(metrics.rate_of_change, {"attention": np.ones((2, 3)), "times": [0, 1]}),
        "phase_diagram": Call(ss.phase_diagram, {"result": grid, "x": "lr_y", "y": "lr_z", "color": "loss"}),
        "load": Call(ss.load, {"path": store, "partial": False, "lazy": None}),
        "check_store": Call(ss.check_store, {"path": store}),
        "save": Call(ss.save, {"dataset": result, "path": folder / "saved.zarr", "overwrite": True}),
        "quantity": Call(
            lambda dim, **words: ss.quantity(dim, **words)(metrics.entropy),
            {
                "dim": "class",
                "needs": "attention",
                "long_name": "x",
                "units": "1",
                "coords": None,
                "full_precision": False,
            },
            1,
        ),
        "Quantity": Call(
            ss.Quantity,
            {
                "name": "x",
                "dims": ("class",),
                "compute": len,
                "needs": ("attention",),
                "attributes": {},
                "coords": {},
                "full_precision": False,
            },
        ),
        "claim": Call(
            lambda **words: ss.claim(**words)(_check),
            {
                "statement": "x",
                "where": "here",
                "category": "added",
                "conditions": "none",
                "setting": ss.assumed_setting,
                "wrong_factor": 1.01,
                "correction": "",
                "needs": (),
                "assumes": (),
                "depends_on": "the classes",
            },
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
    watch.look()
    shape = {"layers": 1, "norm": "post", "dropout": 0.0, "positions": "sinusoidal"}
    return {
        "read_corpus": Call(
            ss.read_corpus, {"source": folder, "tokenizer": "words", "min_count": 1, "progress": False}
        ),
        "count_corpus": Call(
            ss.count_corpus,
            {
                "corpus": corpus,
                "window": 35,
                "split": "train",
                "least": 1,
                "memory": 0.5,
                "cluster": None,
                "retries": 2,
                "output": folder / "counts",
                "add": False,
                "progress": False,
            },
            1,
        ),
        "read_counts": Call(ss.read_counts, {"path": folder / "counts"}),
        "Counts.token": Call(counts.token, {"word": "cat"}),
        "Counts.of": Call(counts.of, {"query": "cat"}),
        "Counts.files": Call(counts.files, {"table": "pairs"}),
        "classes_from_counts": Call(
            ss.classes_from_counts, {"counts": counts, "queries": 2, "next_tokens": 2, "tokens": 5}
        ),
        "predict": Call(
            ss.predict,
            {
                "text": corpus,
                "queries": 2,
                "tokens": 20,
                "least": 1,
                "method": "settled",
                "lr_y": 1.0,
                "window": 8,
                "control": False,
                "seed": 0,
                "device": "cpu",
                "store": None,
                "progress": False,
            },
            1,
        ),
        "score_prediction": Call(
            ss.score_prediction, {"prediction": prediction, "gains": prediction["gain"].values, "top": 3}
        ),
        "shortcuts": Call(
            ss.shortcuts, {"source": labelled, "text": "text", "label": "mood", "allow": (), "progress": False}, 1
        ),
        "Counts.dataset": Call(counts.dataset, {"queries": ["cat"], "tokens": 5, "next_tokens": 5}),
        "text_training": Call(
            ss.text_training,
            {"corpus": corpus, "options": ss.TextOptions(steps=1, **SMALL), "store": None},
        ),
        "train_text": Call(
            ss.train_text,
            {
                "corpus": corpus,
                **SMALL,
                **shape,
                "lr_y": 1.0,
                "lr_z": None,
                "steps": 1,
                "optimizer": "sgd",
                "momentum": 0.0,
                "weight_decay": 0.0,
                "clip": 0.5,
                "precision": "float32",
                "compile": False,
                "device": "cpu",
                "seed": 0,
                "record_every": None,
                "evaluate_every": None,
                "store": None,
                "progress": False,
            },
            1,
        ),
        "watch": Call(
            ss.watch,
            {
                "model": model,
                "probe": probe,
                "every": 50,
                "store": None,
                "record": ("entropy",),
                "rows": 4,
                "tokens": None,
                "errors": "record",
                "sinks": (),
                "start": None,
            },
        ),
        "write_watch_page": Call(ss.write_watch_page, {"page": folder / "looks.html", "dataset": watch.dataset}),
        "judge_heads": Call(ss.judge_heads, {"dataset": watch.dataset, "kinds": None}),
        "head_quantity": Call(
            lambda **words: ss.head_quantity(**words)(_check),
            {"long_name": "x", "units": "1", "reduction": "mean", "sample": "probe"},
        ),
        "HeadQuantity": Call(
            ss.HeadQuantity,
            {"name": "x", "compute": len, "long_name": "x", "units": "1", "reduction": "mean", "sample": "probe"},
        ),
        "head_verdict": Call(
            lambda **words: ss.head_verdict(**words)(_check), {"severity": "note", "needs": "entropy"}
        ),
    }


def _never(*_: object, **__: object) -> None:
    raise InputError("the arguments are good, and the work is long.")


def stop_before_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only small runs start: the rest of their arguments were good, and they would take hours."""
    from scansnap.dynamics import flow, sweep, train
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
    monkeypatch.setattr(flow, "MOST_EVALUATIONS", 2000)
    monkeypatch.setattr(reduced_dynamics, "MOST_EVALUATIONS", 2000)
    monkeypatch.setattr(sweep, "physical_memory", lambda: 2**24)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for whole in ("scansnap.report.reproduce.reproduce", "scansnap.monitor.demo.train_demo"):
        monkeypatch.setattr(whole, _never)
