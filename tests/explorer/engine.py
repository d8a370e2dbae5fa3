"""The page's engine, bundled for Node and asked by a JSON file."""

from __future__ import annotations

import atexit
import json
import math
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from tests.browser import REQUIRED

WEB = Path(__file__).parents[2] / "web"

needs_node = pytest.mark.skipif(
    not REQUIRED and (shutil.which("node") is None or not (WEB / "node_modules").is_dir()),
    reason="the explorer's engine is built by Node from the packages of web/: run `make explorer` first",
)


@cache
def bundle() -> Path:
    """The engine for Node, built from the sources as they are."""
    folder = Path(tempfile.mkdtemp(prefix="scansnap-engine-"))
    atexit.register(shutil.rmtree, folder)
    subprocess.run(["node", "build.mjs", "compare", folder], cwd=WEB, check=True)
    return folder / "compare.mjs"


def ask(question: str, cases: list[dict[str, Any]]) -> list[Any]:
    """What the engine answers to each case of one kind of question (`web/src/compare.ts`)."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump([[question, case] for case in cases], file)
        file.flush()
        answer = subprocess.run(["node", bundle(), file.name], check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return json.loads(answer.stdout)


def plain(classes: ss.SequenceClasses) -> dict[str, Any]:
    """Classes as the engine's `fromSupports` takes them."""
    each = range(classes.num_classes)
    return {
        "tokens": [classes.support(n).tolist() for n in each],
        "probs": [classes.support_probs(n).tolist() for n in each],
        "query": classes.query.tolist(),
        "nextToken": classes.next_token.tolist(),
        "vocabSize": classes.vocab_size,
        "weights": classes.weights.tolist(),
        "tokenNames": None if classes.token_names is None else list(classes.token_names),
    }


def for_engine(**options: Any) -> dict[str, Any]:
    """Options of `train` under the engine's names, with its defaults: the expected update."""
    words = {
        "lr_y": "lrY",
        "lr_z": "lrZ",
        "decoder_gradient": "decoderGradient",
        "batch_size": "batchSize",
        "seq_len": "seqLen",
        "seeds": "seed",
    }
    usual = {
        "lr_y": 1.0,
        "lr_z": 1.0,
        "decoder_gradient": "true",
        "batch_size": None,
        "seq_len": math.inf,
        "seeds": 0,
        "optimizer": "sgd",
        "momentum": None,
        "init": "zeros",
        "residual": False,
        "normalization": "l2",
    }
    values = {words.get(name, name): value for name, value in {**usual, **options}.items()}
    return {
        **values,
        "seqLen": None if math.isinf(values["seqLen"]) else values["seqLen"],
        "momentum": values["momentum"] or 0,
    }


def draw_classes(rng: np.random.Generator) -> ss.SequenceClasses:
    """Two to five classes that share some of their tokens; queries and next tokens may be contextual ones too."""
    count, num_common = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    vocab_size = int(rng.integers(40, 60))
    ids = iter(rng.permutation(vocab_size).tolist())
    common = [next(ids) for _ in range(num_common)]
    tokens = [
        [*(common[:1] + [token for token in common[1:] if rng.random() < 0.8])]
        + [next(ids) for _ in range(rng.integers(1, 5))]
        for _ in range(count)
    ]
    queries = [tokens[0][0] if rng.random() < 0.3 else next(ids)] + [next(ids) for _ in range(count - 1)]
    next_token = [tokens[0][-1] if rng.random() < 0.3 else next(ids)] + [next(ids) for _ in range(count - 1)]
    return ss.SequenceClasses.from_supports(
        tokens=tokens,
        probs=[rng.dirichlet(np.full(len(row), 2.0)) for row in tokens],
        query=[queries[rng.integers(count)] for _ in range(count)],
        next_token=next_token,
        vocab_size=vocab_size,
        weights=rng.dirichlet(np.full(count, 4.0)) if rng.random() < 0.5 else None,
    )
