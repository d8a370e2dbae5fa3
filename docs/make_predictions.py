"""Predictions on WikiText-2: train the models on a GPU, compare, and write the results into docs/prediction.md.

python docs/make_predictions.py run WIKITEXT --device cuda    # OUT/prediction_yz.npz, _regular.npz, _ladder.npz
python docs/make_predictions.py score WIKITEXT                # docs/data/figure_prediction.json
python docs/make_predictions.py write                         # docs/prediction.md and its picture
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import xarray as xr

from scansnap.figures.beyond import prediction as figure
from scansnap.text.corpus.corpus import read_corpus

HERE = Path(__file__).parent
DATA = HERE / "data"


def run(text: str, parts: list[str], device: str, num_seeds: int, passes: int, out: Path) -> None:
    """Train the models of some parts and write the ranks of what they learned."""
    import torch

    corpus = read_corpus(text, progress=False)
    hardware = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        changes = figure.train(
            corpus, parts=[part], num_seeds=num_seeds, passes=passes, device=device,
            say=lambda words: print(words, flush=True),
        )  # fmt: skip
        arrays = {str(name): values.values for name, values in changes.variables.items()}
        for name in ("predicted", "control"):
            arrays[name] = arrays[name].astype(np.float32)
        facts = {**changes.attrs, "hardware": hardware, "dims": {k: v.dims for k, v in changes.variables.items()}}
        np.savez_compressed(out / f"prediction_{part}.npz", **arrays, facts=json.dumps(facts))


def read(path: Path) -> xr.Dataset:
    """What `run` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        facts = json.loads(str(arrays["facts"]))
        dims = facts.pop("dims")
        variables = {name: (dims[name], arrays[name]) for name in dims}
    return xr.Dataset(variables, attrs=facts).set_coords(["part", "model", "ratio"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run",))
    parser.add_argument("text", nargs="?", help="the folder of WikiText-2")
    parser.add_argument("--part", choices=figure.PARTS, action="append", help="what to train; everything if not stated")
    parser.add_argument("--num-seeds", type=int, default=figure.NUM_SEEDS)
    parser.add_argument("--passes", type=int, default=figure.PASSES)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    parts = arguments.part or list(figure.PARTS)
    run(arguments.text, parts, arguments.device, arguments.num_seeds, arguments.passes, arguments.out)


if __name__ == "__main__":
    main()
