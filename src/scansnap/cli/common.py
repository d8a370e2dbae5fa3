"""What the commands share: where classes come from, and showing a result."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scansnap.base.errors import InputError, unknown
from scansnap.base.options import Options, required_of
from scansnap.base.user_file import run_user_file
from scansnap.data.named_classes import NAMED, named_classes
from scansnap.data.source import DataSource
from scansnap.dynamics.published import PUBLISHED, Experiment
from scansnap.figures.picture import save_picture
from scansnap.results.provenance import store_name

if TYPE_CHECKING:
    import xarray as xr

PRESETS_HELP = "; ".join(f"[bold]{name}[/bold] ({experiment.about})" for name, experiment in PUBLISHED.items())
PRESET_OPTION = typer.Option("--preset", help=f"A published setting: {PRESETS_HELP}.", show_default=False)
CLASSES_HELP = f"{', '.join(NAMED)}, or a .toml or .json file"
CLASSES_OPTION = typer.Option(
    "--classes", help=f"Sequence classes, by name or from a file: {CLASSES_HELP}.", show_default=False
)
CONFIG_OPTION = typer.Option(
    "--config", help="A .toml file with the same words; flags given here come first.", show_default=False
)
FROM_OPTION = typer.Option(
    "--from",
    help="A Python file to run first, which may register optimizers, quantities, layers or data of your own by name.",
    show_default=False,
)
STORE_OPTION = typer.Option(
    "--store", help="Where to write the result (zarr); a name of its own in results/ unless given."
)
PICTURE_OPTION = typer.Option(
    "--picture", help="Where to draw the first run's attention (.png, .pdf, .svg); beside the result unless given."
)
JSON_OPTION = typer.Option("--json", help="Print JSON for programs instead of text.")

DRAWN = {"attention", "loss", "entropy"}


def run_parts(file: Path | None) -> None:
    """Run the user's file, so that what it registers can be asked for by name."""
    if file is not None:
        run_user_file(file)


def published(name: str) -> Experiment:
    """The published setting of that name."""
    if name not in PUBLISHED:
        raise unknown("preset", name, PUBLISHED)
    return PUBLISHED[name]


def classes_of(name: str) -> DataSource:
    """The data of a name, of a published setting, or of a file."""
    return PUBLISHED[name].classes if name in PUBLISHED and name not in NAMED else named_classes(name)


def setting(preset: str | None, classes: str | None) -> tuple[str, DataSource, Experiment | None]:
    """The name, the classes and the published setting that a command asks for; syn-small unless told."""
    experiment = published(preset or "syn-small") if preset is not None or classes is None else None
    if classes is not None:
        return Path(classes).stem, classes_of(classes), experiment
    assert experiment is not None
    return preset or "syn-small", experiment.classes, experiment


def values_of(options: Options) -> dict[str, Any]:
    """Options by name."""
    return {field.name: getattr(options, field.name) for field in fields(options)}


def check_required(cls: type[Options], words: Mapping[str, Any]) -> None:
    """Say which flags are missing that only presets could spare."""
    missing = [name for name in required_of(cls) if words.get(name) is None]
    if missing:
        flags = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise InputError(f"{flags} must be given: only presets have rates and lengths of their own.")


def check_picture(picture: Path | None, record: Iterable[str] = DRAWN) -> None:
    """Refuse a picture that could not be drawn, before the work is done."""
    if picture is None:
        return
    if picture.suffix.lower() not in (".png", ".pdf", ".svg") or picture.is_dir():
        raise InputError(f"--picture is '{picture}': give a file whose name ends in .png, .pdf or .svg.")
    if missing := DRAWN - set(record):
        raise InputError(f"--picture needs {', '.join(sorted(missing))}: add it to --record, or leave out --picture.")


def beside(store: Path, ending: str) -> Path:
    """The name of what goes with a result."""
    return store.with_name(store.name.removesuffix(".zarr") + ending)


def default_store(name: str, described: Mapping[str, Any]) -> Path:
    """A name that is the same for the same command, so that an interrupted one goes on."""
    return Path("results") / store_name(name, described)


def say_compiling() -> None:
    """Tell a user who waits for the first compilation on this machine what is going on."""
    from scansnap.dynamics.kernel import compiled_before

    if not compiled_before():
        print("compiling the kernel, once on this machine: about fifteen seconds", file=sys.stderr)


def show(dataset: xr.Dataset, path: Path, picture: Path | None, seconds: float, as_json: bool) -> None:
    """Draw the picture and say what happened and where the result is."""
    from scansnap.results.summary import summarize

    runs = summarize(dataset)
    drawn = _draw(dataset, path, picture)
    if as_json:
        facts = {"result": str(path), "picture": str(drawn) if drawn else None, "seconds": round(seconds, 3)}
        print(json.dumps({**facts, "runs": runs}))
        return
    for run in runs[:12]:
        print(_sentence(run))
    if len(runs) > 12:
        print(f"... and {len(runs) - 12} more runs")
    failed = [run for run in runs if run["status"] not in ("ok",)]
    if failed:
        print(f"{len(failed)} of {len(runs)} runs did not finish: lower their learning rates.", file=sys.stderr)
    if drawn:
        print(f"picture: {drawn}")
    print(f"result: {path}   ({seconds:.1f} s; open it with scansnap.load('{path}') or xarray.open_zarr('{path}'))")


def _draw(dataset: xr.Dataset, path: Path, picture: Path | None) -> Path | None:
    from scansnap.figures import attention_over_time

    records = dataset.sizes.get("step", dataset.sizes.get("time", 0))
    if picture is None and (records < 2 or not set(dataset.data_vars) >= DRAWN):
        return None
    figure = attention_over_time.draw(attention_over_time.prepare(dataset))
    return save_picture(figure, picture or beside(path, ".png"), f"; the result is at {path}")


def _sentence(run: dict[str, Any]) -> str:
    parts = [f"run {run['run']} (lr_y {run['lr_y']:g}, lr_z {run['lr_z']:g}, seed {run['seed']}): {run['status']}"]
    if "diverged_step" in run:
        parts[0] += f" at step {run['diverged_step']}"
    labels = (
        ("loss", "loss"),
        ("fresh_loss", "loss on fresh data"),
        ("entropy", "entropy on distinct tokens"),
        ("common", "attention on common tokens"),
        ("top", "largest attention"),
    )
    for key, label in labels:
        first, last = run.get(f"{key}_first"), run.get(f"{key}_last")
        if first is not None:
            parts.append(f"{label} {first:.3g} → {'-' if last is None else format(last, '.3g')}")
    return "; ".join(parts)
