"""The entropy of attention on WikiText-2 in the setting of JoMA (Tian et al., ICLR 2024): a dip, then a rebound.

    python studies/joma_wikitext.py --text FOLDER --device cuda --minutes 9

The setting is that of the authors' repository (`facebookresearch/luckmatters`, `ssl/real-dataset/decoder_wiki.py` with
`use_baseline=true`): post-norm layers of width 200, feed-forward 200, one head, dropout 0.2, sinusoidal positions,
embeddings times √200; 20 columns read in windows of 35, in order; Adam, which starts anew with each pass, gradients
clipped at 0.5, 20 passes.  Entropy is a mean over rows of the validation split, without dropout: the output has the
mean over rows of more than one key; what is printed counts the first row too, of entropy 0, as the authors do.

The text is split into words by the same rule as theirs, which gives their 2,049,990 training tokens and 28,782 types
(the line end that `read_corpus` adds is one more).  Two differences remain: a pass ends with the last complete window,
and validation windows follow one another instead of standing in 10 columns.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import torch

import scansnap as ss

BATCH, WINDOW, PASSES = 20, 35, 20
SETTING = {
    "width": 200,
    "feed_forward": 200,
    "heads": 1,
    "dropout": 0.2,
    "positions": "sinusoidal",
    "norm": "post",
    "window": WINDOW,
    "batch_size": BATCH,
    "optimizer": "adam",
    "clip": 0.5,
    "patterns": 0,
}
SIGNS = {sign: f" {sign} " for sign in "'.,()!?"} | {'"': "", "<br />": " ", ";": " ", ":": " "}
TIMED = {"cpu": (20, 50), "cuda": (100, 2000)}
"""Updates before the speed of a run is measured, and while it is."""

EVALUATE_EVERY = 2500
"""Updates between validation losses."""

MARGIN = 0.9
"""The share of the remaining time that a run plans to use."""


def split_signs(text: str) -> str:
    """The words of a text in lower case, with signs split off or left out, on one line."""
    text = text.lower()
    for sign, replacement in SIGNS.items():
        text = text.replace(sign, replacement)
    return " ".join(text.split())


def prepare_text(source: Path, folder: Path) -> None:
    """Write the training and validation splits of `source` to `folder`, split into words."""
    for split in ("train", "valid"):
        text = (source / f"{split}.txt").read_text(encoding="utf-8")
        (folder / f"{split}.txt").write_text(split_signs(text) + "\n", encoding="utf-8")


def train(folder: Path, lr: float, layers: int, seed: int, options: dict[str, Any], deadline: float) -> dict[str, Any]:
    """One run, and its records; it makes fewer updates if it would end after `deadline` (by `time.time`)."""
    torch.set_num_threads(1)
    corpus = ss.read_corpus(folder, progress=False)
    per_pass = (len(corpus.train) // BATCH - 1) // WINDOW
    passes, every = options["passes"], options["record_every"]
    run = {**SETTING, **options["model"], "lr_y": lr, "layers": layers, "seed": seed, "record_every": every}
    run |= {"restart_every": per_pass, "evaluate_every": EVALUATE_EVERY, "device": options["device"], "progress": False}
    steps = passes * per_pass
    if deadline < float("inf"):
        times = [time.time()]
        warm_up, timed = TIMED[options["device"]]
        for trial in (warm_up, warm_up + timed):
            ss.train_text(corpus, **run, steps=trial)
            times.append(time.time())
        seconds = max(times[2] - 2 * times[1] + times[0], 1e-3) / timed  # of an update, without the start of a run
        steps = max(1, min(steps, int(MARGIN * (deadline - time.time()) / seconds)))
    began = time.time()
    dataset = ss.train_text(corpus, **run, steps=steps).isel(run=0, head=0)
    return {
        "lr": lr,
        "layers": layers,
        "seed": seed,
        "updates": steps,
        "updates_per_pass": per_pass,
        "seconds": round(time.time() - began, 1),
        "types": corpus.vocab_size,
        "tokens": len(corpus.train),
        "minibatch": dataset["step"].values.tolist(),
        **{name: _rounded(dataset[name].values.T.tolist()) for name in ("entropy", "loss", "valid_loss")},
    }


def _rounded(values: Any) -> Any:
    """Numbers to five digits after the point, and None for NaN."""
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    return None if values != values else round(values, 5)


def describe(run: dict[str, Any]) -> list[str]:
    """For each layer: the entropy at the start, its minimum and where, and at the end."""
    lines = []
    for layer, recorded in enumerate(run["entropy"], start=1):
        entropy = [value * (WINDOW - 1) / WINDOW for value in recorded]
        lowest = min(range(len(entropy)), key=entropy.__getitem__)
        lines.append(
            f"rate {run['lr']:g}, {run['layers']} layers, seed {run['seed']}, layer {layer}: {entropy[0]:.3f}, minimum "
            f"{entropy[lowest]:.3f} at {run['minibatch'][lowest]:,}, {entropy[-1]:.3f} at {run['minibatch'][-1]:,}; "
            f"validation loss {run['valid_loss'][-1]:.3f}; {run['updates'] / max(run['seconds'], 1e-9):.0f} updates/s"
        )
    return lines


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="a folder with WikiText-2's train.txt and valid.txt")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--minutes", type=float, help="runs plan to end by then, with fewer updates if need be")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 1e-3, 1e-5])
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--record-every", type=int, default=500)
    parser.add_argument("--side-by-side", type=int, help="processes; all runs at once unless given")
    parser.add_argument("--width", type=int, default=SETTING["width"], help="smaller for a trial")
    parser.add_argument("--output", type=Path, default=Path("joma_wikitext.json"), help="runs in it are not repeated")
    return parser.parse_args()


def main() -> None:
    """Train every cell that the output does not have yet, and write each as it ends."""
    arguments, start = parse(), time.time()
    deadline = start + 60 * arguments.minutes if arguments.minutes else float("inf")
    options = {
        "device": arguments.device,
        "passes": arguments.passes,
        "record_every": arguments.record_every,
        "model": {"width": arguments.width, "feed_forward": arguments.width},
    }
    runs = json.loads(arguments.output.read_text()) if arguments.output.exists() else []
    done = {(run["lr"], run["layers"], run["seed"]) for run in runs}
    cells = [cell for cell in product(arguments.rates, arguments.layers, arguments.seeds) if cell not in done]
    workers = max(1, min(arguments.side_by_side or len(cells), len(cells)))
    waves = -(-len(cells) // workers)  # cells that a worker trains one after another share its time
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers, _spawn()) as pool:
        prepare_text(arguments.text, Path(folder))
        ss.read_corpus(folder, progress=False)  # so that the runs find it in the cache
        ends = [start + (deadline - start) * (1 + i // workers) / waves for i in range(len(cells))]
        futures = [pool.submit(train, Path(folder), *cell, options, end) for cell, end in zip(cells, ends, strict=True)]
        for future in as_completed(futures):
            runs.append(future.result())
            arguments.output.write_text(json.dumps(runs) + "\n")
            print(*describe(runs[-1]), sep="\n", flush=True)


def _spawn() -> multiprocessing.context.SpawnContext:
    return multiprocessing.get_context("spawn")


if __name__ == "__main__":
    main()
