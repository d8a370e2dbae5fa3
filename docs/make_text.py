"""Figures of text: compute their numbers on a GPU, then draw them.

python docs/make_text.py run WIKITEXT --figure 7 --device cuda   # docs/data/figure_7.json; also 10, tokens and snap
python docs/make_text.py tokens WIKITEXT                         # counts contexts: docs/data/figure_tokens.json
python docs/make_text.py draw                                    # docs/images/text

When the site is built, `<!-- found: 7 -->` on docs/text_results.md becomes what that figure found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from make_figures import line, tex

from scansnap.figures import catalog
from scansnap.figures.recipe import FigureRecipe
from scansnap.text.corpus import Corpus, read_corpus

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "studies"))
import snap as fig_snap  # noqa: E402
import tokens as fig_tokens  # noqa: E402

DATA, IMAGES = HERE / "data", HERE / "images" / "text"
NUM_SEEDS, PASSES = 5, 3
SNAP_SEEDS = 3
FIGURES: dict[str, FigureRecipe] = {
    **{name: catalog.recipe(name) for name in catalog.TEXT},
    "tokens": fig_tokens.FIGURE,
    "snap": fig_snap.FIGURE,
}


def run(text: str, figure: str, device: str, out: Path, workers: int, limit: float) -> None:
    """Train the models of a figure and write its numbers."""
    import torch

    corpus = read_corpus(text)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    if figure == "tokens":
        return run_tokens(corpus, device, name, out)
    if figure == "snap":
        return run_snap(text, device, name, out, workers, limit)
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


def run_snap(text: str, device: str, hardware: str, out: Path, workers: int, limit: float) -> None:
    """Train the models of `fig_snap`, several at once, and write the numbers of the seeds that are complete.

    Each finished run is a file in out/snap_runs, and the same command, started again, makes those that are missing.
    After `limit` seconds no run is begun.
    """
    folder = out / "snap_runs"
    folder.mkdir(parents=True, exist_ok=True)
    began = time.time()
    settings = fig_snap.cells(fig_snap.RATES, fig_snap.FULL["sizes"])
    longest_first = sorted(settings, key=lambda cell: -cell.size)
    jobs = [(cell, seed) for seed in range(SNAP_SEEDS) for cell in longest_first]
    run_job = partial(snap_run, text=text, device=device, folder=folder, deadline=began + limit)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for (cell, seed), seconds in zip(jobs, pool.map(run_job, jobs), strict=True):
            if seconds:
                print(f"{time.time() - began:6.1f} s: {cell}, seed {seed}: {seconds:.1f} s", flush=True)
    files = [[snap_file(folder, cell, seed) for cell in settings] for seed in range(SNAP_SEEDS)]
    complete = [row for row in files if all(file.exists() for file in row)]
    print(f"{len(complete)} of {SNAP_SEEDS} seeds are complete")
    if not complete:
        return
    runs = [xr.load_dataset(row[i], engine="scipy") for i in range(len(settings)) for row in complete]
    dataset = fig_snap.gathered(settings, runs, fig_snap.FULL["steps"])
    seconds = sum(float(one_run["seconds"]) for one_run in runs) / workers
    options = {**fig_snap.FULL, "corpus": read_corpus(text).name, "num_seeds": len(complete)}
    attributes = {"options": json.dumps(options), "hardware": hardware, "seconds": seconds, "workers": workers}
    write_json(dataset.assign_attrs(attributes), out / "figure_snap.json")
    for trend in FIGURES["snap"].trends(dataset):
        print(f"  {trend.verdict}: {trend.statement} {trend.measured_text}; {trend.note}", flush=True)


def snap_file(folder: Path, cell: fig_snap.Cell, seed: int) -> Path:
    """Where a run of `fig_snap` is left."""
    return folder / f"{cell.model}-{cell.size}-{cell.lr:g}-{cell.schedule}-{cell.batch_size}-{seed}.nc"


def snap_run(job: tuple[fig_snap.Cell, int], *, text: str, device: str, folder: Path, deadline: float) -> float:
    """One run of `fig_snap`, if it has no file yet and there is time; the seconds that it took."""
    file, began = snap_file(folder, *job), time.time()
    if file.exists() or began > deadline:
        return 0.0
    options = {name: fig_snap.FULL[name] for name in ("steps", "width")}
    dataset = fig_snap.train(read_corpus(text), *job, **options, device=device, progress=False)
    dataset["seconds"] = seconds = time.time() - began
    draft = file.with_suffix(".draft")
    dataset.to_netcdf(draft, engine="scipy")
    draft.rename(file)
    return seconds


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


def draw() -> None:
    """Draw every figure from its stored numbers."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for number, recipe in FIGURES.items():
        recipe.draw(read_json(DATA / f"figure_{number}.json")).savefig(IMAGES / f"figure_{number}.png", dpi=90)


def found() -> dict[str, str]:
    """What stands on the page in place of each mark."""
    return {number: _section(number, recipe) for number, recipe in FIGURES.items()}


def _section(number: str, recipe: FigureRecipe) -> str:
    dataset = read_json(DATA / f"figure_{number}.json")
    options = json.loads(dataset.attrs["options"])
    at_once = f", {dataset.attrs['workers']} runs at once" if "workers" in dataset.attrs else ""
    origin = (
        f"{options['steps']:,} updates, {seeds(dataset)}, on one {dataset.attrs['hardware']} in "
        f"{dataset.attrs.get('training_seconds', dataset.attrs['seconds']):.0f} s{at_once}; "
        f"numbers in [figure_{number}.json](data/figure_{number}.json)"
    )
    setting = tex(recipe.setting)
    tests = "".join(line(trend) for trend in recipe.trends(dataset)).rstrip()
    picture = f"![{recipe.title}](images/text/figure_{number}.png)"
    return f"{recipe.statement}\n\n{picture}\n\n{setting[0].upper()}{setting[1:]}. {origin}.\n\n{tests}"


def seeds(dataset: xr.Dataset) -> str:
    """How many there are, in words."""
    count = dataset.sizes["seed"]
    return f"{count} seed{'s' * (count > 1)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("run", "tokens", "draw"))
    parser.add_argument("text", nargs="?", help="the folder of WikiText-2")
    parser.add_argument("--figure", choices=tuple(FIGURES), default="7", help="what to run")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--workers", type=int, default=8, help="for snap: runs at once")
    parser.add_argument("--limit", type=float, default=330.0, help="for snap: seconds after which no run is begun")
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(**{name: getattr(arguments, name) for name in ("text", "figure", "device", "out", "workers", "limit")})
    elif arguments.what == "tokens":
        tokens(arguments.text, arguments.out)
    else:
        draw()


if __name__ == "__main__":
    main()
