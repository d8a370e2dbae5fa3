"""Predictions on WikiText-2: train models on a GPU, compare what they learned, and write the results.

python docs/make_predictions.py run WIKITEXT --device cuda --out FOLDER    # FOLDER/prediction_*.npz
python docs/make_predictions.py score WIKITEXT --out FOLDER                # docs/data/figure_prediction.json
python docs/make_predictions.py write                                      # docs/prediction_results.md and its picture
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import xarray as xr

from scansnap.figures.beyond import prediction as figure
from scansnap.text.corpus.corpus import read_corpus
from scansnap.text.predictions.trials import GROUPS, run_trials

HERE = Path(__file__).parent
DATA = HERE / "data"
PREDICTED = "predicted"


def run(text: str, groups: list[str], device: str, num_seeds: int, passes: int, out: Path) -> None:
    """Predict, train the models of some groups, and write what they learned, group by group."""
    import torch

    corpus = read_corpus(text, progress=False)
    facts = {"hardware": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    predicted = figure.predictions(corpus, device=device)
    facts["predicting_seconds"] = round(time.perf_counter() - began, 1)
    print(f"{len(figure.METHODS)} predictions, each with a control: {facts['predicting_seconds']} s", flush=True)
    store(predicted.assign_attrs(facts), out / f"prediction_{PREDICTED}.npz")
    for group in groups:
        changes = run_trials(
            corpus, predicted["query"].values, predicted["token"].values, groups=[group], num_seeds=num_seeds,
            passes=passes, device=device, say=lambda words: print(words, flush=True),
        )  # fmt: skip
        store(changes.assign_attrs({**changes.attrs, **facts}), out / f"prediction_{group}.npz")


def store(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset as a file of plain arrays, real numbers in single precision."""
    arrays = {str(name): variable.values for name, variable in dataset.variables.items()}
    arrays = {name: array.astype(np.float32) if array.dtype.kind == "f" else array for name, array in arrays.items()}
    dims = {name: dataset[name].dims for name in arrays}
    shape = {"dims": dims, "coords": [str(name) for name in dataset.coords], "attrs": dataset.attrs}
    np.savez_compressed(path, **arrays, shape=json.dumps(shape))


def stored(path: Path) -> xr.Dataset:
    """What `store` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        shape = json.loads(str(arrays["shape"]))
        variables = {name: (dims, arrays[name]) for name, dims in shape["dims"].items()}
    return xr.Dataset(variables, attrs=shape["attrs"]).set_coords(shape["coords"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run",))
    parser.add_argument("text", nargs="?", help="the folder of WikiText-2")
    parser.add_argument("--group", choices=GROUPS, action="append", help="what to train; everything if not stated")
    parser.add_argument("--num-seeds", type=int, default=figure.NUM_SEEDS)
    parser.add_argument("--passes", type=int, default=figure.PASSES)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    groups = arguments.group or list(GROUPS)
    run(arguments.text, groups, arguments.device, arguments.num_seeds, arguments.passes, arguments.out)


if __name__ == "__main__":
    main()
