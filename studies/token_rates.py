"""Does the ratio of the learning rates decide how much distinctness explains, or the rates themselves?

python studies/token_rates.py PATH                a CPU takes a quarter of an hour for 300,000 tokens

`tokens.py` varies eta_Z alone, so a larger ratio is also a smaller eta_Z and attention that has moved less.  Here both
rates vary: 1-layer transformers without positions at ratios of 1 and 5, each with small and with large rates.  Printed
are the mean over seeds of the partial rank correlation of distinctness with the change of the logits, its standard
error, and the normalized entropy of attention after training; then paired tests with Holm's correction.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import scansnap as ss
from scansnap.figures.statistics import holm, positive, standard_error
from token_choice import count_tokens, rank_correlations
from tokens import QUERIES, TOKENS, query_logits

RATES = ((1.0, 1.0), (5.0, 5.0), (1.0, 0.2), (5.0, 1.0))
NUM_SEEDS, STEPS, WIDTH, LEAST_COUNT = 5, 800, 64, 10
RESULTS = Path("results/studies/token_rates.json")


def run(corpus: Any, counts: Any, lr_y: float, lr_z: float, seed: int) -> dict[str, float]:
    """Train one model: the partial correlations of distinctness and of its control, the entropy and the loss."""
    training = ss.text_training(
        corpus,
        positions="none",
        steps=STEPS,
        record_every=STEPS,
        width=WIDTH,
        feed_forward=WIDTH,
        lr_y=lr_y,
        lr_z=lr_z,
        seed=seed,
    )
    queries, tokens = counts["query"].values, counts["token"].values
    before = query_logits(training.model, queries, tokens)
    result = training.run(False)
    change = query_logits(training.model, queries, tokens) - before
    partial = rank_correlations(counts, change)["partial"].mean("query")
    return {
        **{name: float(partial.sel(explanation=name)) for name in ("distinctness", "control")},
        "entropy": float(result["normalized_entropy"].values[0, -1].mean()),
        "loss": float(result["valid_loss"].values[0, -1]),
    }


def report(runs: dict[str, dict[str, float]]) -> None:
    """Print the table and the tests."""

    def values(pair: tuple[float, float], name: str) -> np.ndarray:
        return np.array([runs[f"{pair[0]:g}/{pair[1]:g}/{seed}"][name] for seed in range(NUM_SEEDS)])

    print("eta_Y  eta_Z  ratio  distinctness        control  entropy  loss")
    for y, z in RATES:
        d, means = values((y, z), "distinctness"), [values((y, z), n).mean() for n in ("control", "entropy", "loss")]
        numbers = f"{d.mean():8.3f} ± {standard_error(d):.3f}  {means[0]:8.3f} {means[1]:8.2f} {means[2]:6.2f}"
        print(f"{y:5g} {z:6g} {y / z:6g}  {numbers}")
    small, large, small_faster, large_faster = RATES
    changes = {
        "ratio 1 to 5 by a smaller eta_Z, small rates": (small, small_faster),
        "ratio 1 to 5 by a smaller eta_Z, large rates": (large, large_faster),
        "ratio 1 to 5 by a larger eta_Y": (small, large_faster),
        "rates five times as large, ratio 1": (small, large),
        "rates five times as large, ratio 5": (small_faster, large_faster),
    }
    differences = np.array([values(b, "distinctness") - values(a, "distinctness") for a, b in changes.values()])
    two_sided = 2 * np.minimum(positive(differences), positive(-differences))
    for name, d, p in zip(changes, differences, holm(two_sided), strict=True):
        print(f"{name}: change {d.mean():+.3f} ± {standard_error(d):.3f}, p = {p:.2g} after Holm")


def main(path: str) -> None:
    corpus = ss.read_corpus(path, min_count=LEAST_COUNT)
    queries, tokens = corpus.frequent_words(QUERIES), min(TOKENS, corpus.vocab_size)
    counts = count_tokens(corpus, queries, window=ss.TextOptions.window, tokens=tokens)
    runs = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    for seed, (lr_y, lr_z) in product(range(NUM_SEEDS), RATES):
        name = f"{lr_y:g}/{lr_z:g}/{seed}"
        if name not in runs:
            runs[name] = run(corpus, counts, lr_y, lr_z, seed)
            RESULTS.write_text(json.dumps(runs, indent=1))
            print(name, runs[name], flush=True)
    print(f"{len(corpus.train):,} tokens of {corpus.vocab_size:,} types, {STEPS} updates, {NUM_SEEDS} seeds")
    report(runs)


if __name__ == "__main__":
    main(sys.argv[1])
