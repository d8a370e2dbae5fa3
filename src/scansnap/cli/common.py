"""Shared by the commands: finding the classes and showing a result."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scansnap.cli.say import say
from scansnap.data.named_classes import NAMED, named_classes
from scansnap.data.source import DataSource
from scansnap.dynamics.published import PUBLISHED, Experiment
from scansnap.figures.picture import save_picture
from scansnap.results.provenance import store_name
from scansnap.runtime.errors import InputError, unknown
from scansnap.validation import checks
from scansnap.validation.options import Options, required_of
from scansnap.validation.user_code import run_user_file

if TYPE_CHECKING:
    import xarray as xr

PRESET_OPTION = typer.Option(
    "--preset", help="A published setting, by its name in the list at the end.", show_default=False
)
CLASSES_HELP = f"{', '.join(NAMED)}, or a .toml or .json file"
CLASSES_OPTION = typer.Option(
    "--classes", help=f"Sequence classes, by name or from a file: {CLASSES_HELP}.", show_default=False
)
CONFIG_OPTION = typer.Option(
    "--config", help="A .toml file with the same options; flags override it.", show_default=False
)
FROM_OPTION = typer.Option(
    "--from",
    help="A Python file to run first, which may register optimizers, quantities, layers or data of your own by name.",
    show_default=False,
)
STORE_OPTION = typer.Option(
    "--store", help="Where to write the result (zarr); by default in results/, named for the options."
)
PICTURE_OPTION = typer.Option(
    "--picture",
    help="Where to draw attention of the first run and losses of all (.png, .pdf, .svg); by default beside the result.",
)
JSON_OPTION = typer.Option("--json", help="Print JSON for programs instead of text.")

DRAWN = {"attention", "loss", "entropy"}


def run_parts(file: Path | None) -> None:
    """Run the user's file, so that what it registers can be used by name."""
    if file is not None:
        run_user_file(file)


def published(name: str) -> Experiment:
    """The published setting with this name."""
    if name not in PUBLISHED:
        raise unknown("preset", name, PUBLISHED)
    return PUBLISHED[name]


def classes_of(name: str) -> DataSource:
    """The data with this name, of a published setting, or from a file."""
    return PUBLISHED[name].classes if name in PUBLISHED and name not in NAMED else named_classes(name)


def setting(preset: str | None, classes: str | None) -> tuple[str, DataSource, Experiment | None]:
    """The name, the classes and the published setting that a command asks for; by default syn-small."""
    experiment = published(preset or "syn-small") if preset is not None or classes is None else None
    if classes is not None:
        return Path(classes).stem, classes_of(classes), experiment
    assert experiment is not None
    return preset or "syn-small", experiment.classes, experiment


EXAMPLES = {"lr_y": "--lr-y 5", "lr_z": "--lr-z 10", "steps": "--steps 100"}
"""Rates and a length at which attention of small classes visibly scans."""


def check_required(command: str, classes: str | None, cls: type[Options], words: Mapping[str, Any]) -> None:
    """Refuse a command without the flags that only presets make optional, and say what could be typed."""
    missing = ["--" + name.replace("_", "-") for name in required_of(cls) if words.get(name) is None]
    if missing:
        source = "" if classes is None else f" --classes {shlex.quote(classes)}"
        values = " ".join(EXAMPLES[name] for name in required_of(cls) if name in EXAMPLES)
        raise InputError(
            f"{', '.join(missing)} must be given, since only presets set rates and lengths: try scansnap "
            f"{command}{source} {values}, or the options of a preset, scansnap {command} --preset syn-small{source}."
        )


def check_picture(picture: Path | None, record: Iterable[str] = DRAWN) -> None:
    """Refuse a picture that cannot be drawn, before the work starts."""
    if picture is None:
        return
    checks.path("--picture", picture)
    if picture.suffix.lower() not in (".png", ".pdf", ".svg") or picture.is_dir():
        raise InputError(f"--picture is '{picture}': give a file whose name ends in .png, .pdf or .svg.")
    if missing := DRAWN - set(record):
        raise InputError(f"--picture needs {', '.join(sorted(missing))}: add it to --record, or leave out --picture.")


def beside(store: Path, ending: str) -> Path:
    """The path of a file that goes with a result."""
    return store.with_name(store.name.removesuffix(".zarr") + ending)


def default_store(name: str, described: Mapping[str, Any]) -> Path:
    """A name that is the same for the same command, so that an interrupted one continues."""
    return Path("results") / store_name(name, described)


def say_compiling(module: str) -> None:
    """Tell a user who waits for the first compilation of a module on this machine why."""
    from scansnap.dynamics.compiled import compiled_before

    if not compiled_before(module):
        say(f"compiling {module}, once on this machine: ten to twenty seconds", error=True)


def show(dataset: xr.Dataset, path: Path, picture: Path | None, seconds: float, as_json: bool) -> None:
    """Draw the picture, and print what happened and where the result is."""
    from scansnap.results.story import of_all_runs
    from scansnap.results.summary import summarize

    runs = summarize(dataset)
    drawn = _draw(dataset, path, picture)
    if as_json:
        facts = {"result": str(path), "picture": str(drawn) if drawn else None, "seconds": round(seconds, 3)}
        say(json.dumps({**facts, "runs": runs}))
        return
    for run in runs[:12]:
        say(_sentence(run))
        if "story" in run:
            say(f"  {run['story']}")
    if len(runs) > 12:
        say(f"... and {len(runs) - 12} more runs")
    if len(told := [run for run in runs if "story" in run]) > 1:
        steps = [math.nan if run["snap_step"] is None else run["snap_step"] for run in told]
        stay = [run["snap_status"] != "slowed" for run in told]
        say(of_all_runs(steps, stay, "step" if "step" in dataset.dims else "time"))
    failed = [run for run in runs if run["status"] not in ("ok",)]
    if failed:
        say(f"{len(failed)} of {len(runs)} runs did not finish: lower their learning rates.", error=True)
    if drawn:
        say(f"picture: {drawn}")
    say(f"result: {path}   ({seconds:.1f} s; open it with scansnap.load('{path}') or xarray.open_zarr('{path}'))")


def _draw(dataset: xr.Dataset, path: Path, picture: Path | None) -> Path | None:
    _leave_out_descriptions()
    from scansnap.figures import attention_over_time

    records = dataset.sizes.get("step", dataset.sizes.get("time", 0))
    if picture is None and (
        records < 2 or not set(dataset.data_vars) >= DRAWN or not attention_over_time.has_attention(dataset)
    ):
        return None
    figure = attention_over_time.draw(attention_over_time.prepare(dataset))
    return save_picture(figure, picture or beside(path, ".png"), f"; the result is at {path}")


def _leave_out_descriptions() -> None:
    """Keep matplotlib from describing the properties of its classes for help, a third of the time of its import."""
    import matplotlib.artist

    matplotlib.artist.kwdoc = lambda artist: ""


def _sentence(run: dict[str, Any]) -> str:
    parts = [f"run {run['run']} (lr_y {run['lr_y']:g}, lr_z {run['lr_z']:g}, seed {run['seed']}): {run['status']}"]
    if "diverged_step" in run:
        parts[0] += f" at step {run['diverged_step']}"
    by_degrees = run.get("entropy_first") is None  # no class has a distinct token
    labels = {
        "loss": "loss",
        "fresh_loss": "loss on fresh data",
        **(
            {"favored_entropy": "entropy on favored tokens"}
            if by_degrees
            else {"entropy": "entropy on distinct tokens"}
        ),
        **({"favored": "attention on favored tokens"} if by_degrees else {"common": "attention on common tokens"}),
        "top": "largest attention",
    }
    for key, label in labels.items():
        first, last = run.get(f"{key}_first"), run.get(f"{key}_last")
        if first is not None:
            parts.append(f"{label} {first:.3g} → {'not finite' if last is None else format(last, '.3g')}")
    return "; ".join(parts)
