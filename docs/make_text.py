"""Figures 7 and 10 and the choice of tokens on text: compute their numbers on a GPU, then write the results.

python docs/make_text.py run WIKITEXT --figure 7 --device cuda   # docs/data/figure_7.json; also 10 and tokens
python docs/make_text.py tokens WIKITEXT                         # counts contexts: docs/data/figure_tokens.json
python docs/make_text.py write                                   # docs/text_results.md and its pictures
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from make_figures import table

from scansnap.figures import catalog
from scansnap.figures.beyond import tokens as fig_tokens
from scansnap.figures.recipe import FigureRecipe
from scansnap.text.corpus.corpus import Corpus, read_corpus

HERE = Path(__file__).parent
DATA, IMAGES = HERE / "data", HERE / "images" / "text"
NUM_SEEDS, PASSES = 5, 3
FIGURES: dict[str, FigureRecipe] = {name: catalog.recipe(name) for name in catalog.TEXT}


def run(text: str, figure: str, device: str, out: Path) -> None:
    """Train the models of a figure and write its numbers."""
    import torch

    corpus = read_corpus(text)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    if figure == "tokens":
        return run_tokens(corpus, device, name, out)
    recipe = FIGURES[figure]
    options = {"steps": PASSES * (len(corpus.train) // 20 // 35)} if figure == "7" else {}
    dataset = recipe.make(text=corpus, num_seeds=NUM_SEEDS, device=device, folder=None, progress=False, **options)
    print(f"Figure {figure}: {dataset.attrs['seconds']} s", flush=True)
    for trend in recipe.trends(dataset):
        print(f"  {trend.verdict}: {trend.statement} {trend.measured_text}; {trend.note}", flush=True)
    return write_json(dataset.assign_attrs(hardware=name), out / f"figure_{figure}.json")


def run_tokens(corpus: Corpus, device: str, hardware: str, out: Path) -> None:
    """Train the models of `fig_tokens` and write their logits."""
    began = time.perf_counter()
    logits = fig_tokens.train(corpus, num_seeds=NUM_SEEDS, device=device, folder=None, progress=False)
    logits.attrs |= {"seconds": round(time.perf_counter() - began, 1), "hardware": hardware}
    arrays = {str(name): values.values for name, values in logits.items()}
    arrays["logits"] = arrays["logits"].astype(np.float16)
    coords = {name: logits[name].values for name in ("ratio", "seed", "query")}
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out / "token_logits.npz", **arrays, **coords, attrs=json.dumps(logits.attrs))


def tokens(text: str, folder: Path) -> None:
    """Correlate the logits that `run` wrote with counts in the text."""
    with np.load(folder / "token_logits.npz", allow_pickle=False) as arrays:
        logits = xr.Dataset(
            {
                "logits": (("ratio", "seed", "end", "query", "token"), arrays["logits"].astype(np.float32)),
                "valid_loss": (("ratio", "seed"), arrays["valid_loss"]),
                "normalized_entropy": (("ratio", "seed"), arrays["normalized_entropy"]),
            },
            coords={name: arrays[name] for name in ("ratio", "seed", "query")},
            attrs=json.loads(str(arrays["attrs"])),
        )
    dataset = FIGURES["tokens"].make(text=text, logits=logits)
    dataset.attrs |= {"training_seconds": logits.attrs["seconds"], "hardware": logits.attrs["hardware"]}
    write_json(dataset, DATA / "figure_tokens.json")


def write_json(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset as JSON, with numbers to five digits and null for NaN and infinity."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, float):
            return float(f"{value:.5g}") if np.isfinite(value) else None
        return value

    path.parent.mkdir(parents=True, exist_ok=True)
    content = dataset.to_dict()
    for group in ("coords", "data_vars"):
        for variable in content[group].values():
            variable["data"] = plain(variable["data"])
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


def read_json(path: Path) -> xr.Dataset:
    """The dataset that `write_json` wrote."""
    content = json.loads(path.read_text())
    for variable in content["data_vars"].values():
        values = np.array(variable["data"])
        variable["data"] = values if values.dtype.kind in "US" else values.astype(np.float64)
    return xr.Dataset.from_dict(content)


def write() -> None:
    """Write docs/text_results.md and its pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    text = OPENING
    for number, recipe in FIGURES.items():
        dataset = read_json(DATA / f"figure_{number}.json")
        recipe.draw(dataset).savefig(IMAGES / f"figure_{number}.png", dpi=90)
        heading = f"Figure {number}: {recipe.title}" if number != "tokens" else recipe.title
        options = json.loads(dataset.attrs["options"])
        made = (
            f"{options['steps']:,} updates, {dataset.sizes['seed']} seeds, on one {dataset.attrs['hardware']} in "
            f"{dataset.attrs.get('training_seconds', dataset.attrs['seconds']):.0f} s; "
            f"numbers in [figure_{number}.json](data/figure_{number}.json)"
        )
        text += f"## {heading}\n\n{recipe.statement}\n\n![{heading}](images/text/figure_{number}.png)\n\n"
        text += f"{recipe.setting}. {made}.\n\n"
        text += table(recipe.trends(dataset))
    (HERE / "text_results.md").write_text(text)


OPENING = """# Transformers on WikiText-2: the results

*For readers of the paper's Figures 7 and 10. After it you can say which of their statements hold on WikiText-2, with
numbers.*

Written by `docs/make_text.py` from numbers that it computed on a GPU and stored in `docs/data`. Tests are one-sided,
over seeds, at the 5% level, with Holm's correction where a statement has several comparisons. [text.md](text.md) says
what the results mean.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run", "tokens", "write"))
    parser.add_argument("text", nargs="?", help="the folder of WikiText-2")
    parser.add_argument("--figure", choices=tuple(FIGURES), default="7", help="what to run")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.text, arguments.figure, arguments.device, arguments.out)
    elif arguments.what == "tokens":
        tokens(arguments.text, arguments.out)
    else:
        write()


if __name__ == "__main__":
    main()
