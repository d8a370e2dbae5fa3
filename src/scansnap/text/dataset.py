"""The dataset of a text training run, and its summary.

Dimensions are among run, step, layer, head, window, query_position, key_position, query, token and rank.  `window` runs
over a few fixed windows of the validation split, whose words are the coordinate `word`.  With Y and Z, `query` runs
over the most frequent words, `token` over the whole vocabulary, and `rank` over the tokens with the largest logits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.results.measure import snaps
from scansnap.results.store import Variable
from scansnap.storage.provenance import attributes
from scansnap.text.corpus import Corpus
from scansnap.text.options import RecordSchedule, TextOptions, YZTextOptions

WINNERS = 10
"""Tokens with the largest attention logits of a query that are recorded."""

HEADS = ("run", "step", "layer", "head")
VARIABLES = {
    "loss": (HEADS[:2], "cross-entropy, mean over the updates since the last record", "nats"),
    "valid_loss": (HEADS[:2], "cross-entropy over the validation split, where it was measured", "nats"),
    "entropy": (HEADS, "entropy of attention, mean over the measured windows of the validation split", "nats"),
    "normalized_entropy": (HEADS, "entropy of attention relative to the largest that its row allows", "1"),
    "top_1": (HEADS, "largest attention weight, mean over rows of more than one key", "1"),
    "top_5": (HEADS, "sum of the five largest attention weights, mean over rows of more than five keys", "1"),
    "moved": (HEADS, "share of attention that moved since the last record", "1"),
    "pattern": (
        (*HEADS, "window", "query_position", "key_position"),
        "attention on fixed windows of the validation split",
        "1",
    ),
    "winner": ((*HEADS, "query", "rank"), "tokens with the largest attention logits above 0", "1"),
    "winner_logit": ((*HEADS, "query", "rank"), "attention logits of the winners", "1"),
    "attention_logits": (("run", "layer", "head", "query", "token"), "rows of Z after training", "1"),
}
"""The dimensions, the meaning and the unit of every variable."""


def variable_names(size: Mapping[str, int]) -> list[str]:
    """The variables of a result of this size."""
    return [name for name, (dims, _, _) in VARIABLES.items() if all(size[dim] for dim in dims)]


def variables(size: Mapping[str, int]) -> dict[str, Variable]:
    """Every variable as a store creates it."""
    made = {}
    for name in variable_names(size):
        dims, meaning, units = VARIABLES[name]
        shape = tuple(size[dim] for dim in dims)
        chunks = (1, max(1, min(shape[1], 64)), *(max(1, s) for s in shape[2:]))
        dtype = np.dtype("float32" if name == "pattern" else "float64")
        made[name] = Variable(dims, shape, dtype, chunks, {"long_name": meaning, "units": units})
    return made


def template(
    corpus: Corpus,
    options: TextOptions | YZTextOptions,
    schedule: RecordSchedule,
    size: Mapping[str, int],
    windows: NDArray[np.int64],
    queries: NDArray[np.int64],
    processes: int,
) -> xr.Dataset:
    """Coordinates and attributes; the patterns are of `windows` (window, position)."""
    run = {"lr_y": options.lr_y, "lr_z": options.rate_z}
    if isinstance(options, TextOptions):
        run["seed"] = options.seed
    coords: dict[str, Any] = {
        "run": [0],
        **{name: ("run", [value]) for name, value in run.items()},
        "status": ("run", np.array(["running"], "U8")),
        "diverged_step": ("run", np.array([-1])),
        "step": (
            "step",
            schedule.record_steps,
            {"units": "steps", "long_name": "updates, each with one batch of windows"},
        ),
        "layer": np.arange(size["layer"]),
        "head": np.arange(size["head"]),
    }
    if size["window"]:
        coords |= {
            "query_position": np.arange(size["query_position"]),
            "key_position": np.arange(size["key_position"]),
            "word": (("window", "key_position"), np.array([corpus.words(row) for row in windows])),
        }
    if size["query"]:
        coords |= {
            "query": queries,
            "query_word": ("query", np.array(corpus.words(queries))),
            "token": np.arange(size["token"]),
            "token_word": ("token", np.array(corpus.words(range(corpus.vocab_size)))),
        }
    configuration = {
        **options.to_dict(),
        **asdict(schedule),
        "lr_z": options.rate_z,
        "vocab_size": corpus.vocab_size,
        "corpus": corpus.name,
        "corpus_fingerprint": corpus.fingerprint,
        "tokenizer": corpus.tokenizer.name,
        "processes": processes,
        "record": variable_names(size),
    }
    model = "the (Y, Z) model" if size["query"] else "a transformer"
    return xr.Dataset(coords=coords, attrs=attributes("text", f"attention of {model} trained on text", configuration))


def summarize_text(dataset: xr.Dataset) -> dict[str, Any]:
    """The status, the last losses, and for each head its entropy at both ends and whether its pattern froze."""
    run = dataset.isel(run=0)
    recorded = np.flatnonzero(np.isfinite(run["entropy"].values).all((1, 2)))
    last = int(recorded[-1]) if len(recorded) else 0
    valid = _last(run["valid_loss"].values)
    head_snaps = snaps(dataset).isel(run=0)
    heads = [
        {
            "layer": layer,
            "head": head,
            **{
                f"{name}_{end}": _number(run[name].values[record, layer, head])
                for name in ("entropy", "normalized_entropy", "top_1")
                for end, record in (("first", 0), ("last", last))
            },
            "snap_step": _number(head_snaps["snap_step"].values[layer, head]),
            "snap": str(head_snaps["evidence"].values[layer, head]),
        }
        for layer in range(dataset.sizes["layer"])
        for head in range(dataset.sizes["head"])
    ]
    return {
        "status": str(run["status"].values),
        "diverged_step": int(run["diverged_step"].values),
        "step": int(run["step"].values[last]),
        "loss": _last(run["loss"].values),
        "valid_loss": valid,
        "valid_perplexity": None if valid is None else math.exp(min(valid, 700.0)),
        "heads": heads,
    }


def _last(values: Any) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
