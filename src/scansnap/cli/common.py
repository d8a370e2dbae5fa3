"""What the commands share: options, reading lists, and showing a result."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from scansnap.base.errors import InputError
from scansnap.cli.presets import PRESETS, Preset, preset
from scansnap.data.classes_file import read_classes
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.figures.picture import save_picture
from scansnap.results.provenance import store_name
from scansnap.sweeps.config import seeds_of


def _preset_option(names: Iterable[str]) -> Any:
    about = "; ".join(f"[bold]{name}[/bold] ({PRESETS[name].about})" for name in names)
    return typer.Option("--preset", help=f"A named setting: {about}.", show_default=False)


PRESET_OPTION = _preset_option(PRESETS)
FLOW_PRESET_OPTION = _preset_option(name for name, chosen in PRESETS.items() if chosen.flow is not None)
CLASSES_OPTION = typer.Option("--classes", help="Your own sequence classes: a .toml or .json file.", show_default=False)
LR_Y_OPTION = typer.Option("--lr-y", help="Learning rate of the decoder Y; several, as 1,2,5, make several runs.")
LR_Z_OPTION = typer.Option("--lr-z", help="Learning rate of the attention logits Z; one, or as many as there are runs.")
SEEDS_OPTION = typer.Option("--seeds", help="Seeds, as 0 or 0,1,2 or 0:10; one run each.")
INIT_OPTION = typer.Option("--init", help="Start: zeros, or uniform in ±1/√M.")
GRADIENT_OPTION = typer.Option("--decoder-gradient", help="true (SGD's) or modified (Lemma 3's).")
NORMALIZATION_OPTION = typer.Option("--normalization", help="l2, or layer (standard LayerNorm, mean subtracted).")
RESIDUAL_OPTION = typer.Option("--residual/--no-residual", help="Add the query to what is attended to (Section 7).")
HEADS_OPTION = typer.Option("--heads", help="Heads, each with a Y and a Z of its own.")
LAYERS_OPTION = typer.Option("--layers", help="Layers on top of each other.")
NONLINEARITY_OPTION = typer.Option("--nonlinearity", help="Between layers: tanh or relu.")
INIT_SCALE_OPTION = typer.Option("--init-scale-z", help="How many times as wide Z's uniform start is.")
PRIOR_OPTION = typer.Option(
    "--attention-prior", help="Logits added to Z for tokens or kinds of tokens, as common=-2 or the=-1,cat=0.5."
)
BIAS_OPTION = typer.Option(
    "--position-bias", help="Logits by bucket of positions, nearest first, as 0,-1,-2; or alibi=SLOPE."
)
LEARN_BIAS_OPTION = typer.Option(
    "--learn-position-bias/--fix-position-bias", help="Whether the logits by position are learned."
)
NUM_SEQUENCES_OPTION = typer.Option("--num-sequences", help="Train on a fixed set of so many sequences.")
STORE_OPTION = typer.Option(
    "--store", help="Where to write the result (zarr); a name of its own in results/ unless given."
)
PICTURE_OPTION = typer.Option(
    "--picture", help="Where to draw the first run's attention (.png, .pdf, .svg); beside the result unless given."
)
JSON_OPTION = typer.Option("--json", help="Print JSON for programs instead of text.")


def setting(
    preset_name: str | None, classes_file: Path | None, verb: str
) -> tuple[str, SequenceClasses, dict[str, Any]]:
    """The name, classes and preset options that the command asks for; syn-small unless told."""
    if preset_name is not None and classes_file is not None:
        raise InputError("both --preset and --classes are given: choose one source of classes.")
    if classes_file is not None:
        return classes_file.stem, read_classes(classes_file), {}
    name = preset_name or "syn-small"
    chosen: Preset = preset(name)
    options = chosen.train if verb == "train" else chosen.flow
    if options is None:
        raise InputError(
            f"preset {name} is trained by {chosen.train['optimizer']}, but flow and verify are about SGD: use scansnap "
            "train, or another preset."
        )
    return name, chosen.classes(), dict(options)


def numbers(name: str, text: str | None) -> list[float] | None:
    """`1,2,5` as numbers."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{name} is '{text}': give a number, or several separated by commas, as 1,2,5.") from None


def integers(name: str, text: str | None) -> list[int] | None:
    """`0`, `0,1,2` or `0:10` as whole numbers."""
    return None if text is None else seeds_of(text, name)


def length(text: str | None) -> float | None:
    """A sequence length: a whole number or `inf`."""
    if text is None:
        return None
    if text.lower() in ("inf", "infinity"):
        return math.inf
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--seq-len is '{text}': give a whole number, or inf for T → ∞.") from None


def batch(text: str | None) -> tuple[bool, int | None]:
    """Whether a batch size was given, and it: a whole number or `none`."""
    if text is None:
        return False, None
    if text.lower() == "none":
        return True, None
    try:
        return True, int(text)
    except ValueError:
        raise InputError(f"--batch-size is '{text}': give a whole number, or none for the expected update.") from None


def prior(text: str | None) -> dict[str, float] | None:
    """`common=-2,the=1` as logits by token or kind of tokens."""
    if text is None:
        return None
    try:
        return {key.strip(): float(value) for key, value in (part.rsplit("=", 1) for part in text.split(","))}
    except ValueError:
        raise InputError(
            f"--attention-prior is '{text}': give tokens or kinds with their logits, as common=-2 or the=-1,cat=0.5."
        ) from None


def bias(text: str | None) -> list[float] | dict[str, float] | None:
    """`0,-1,-2` as numbers, or `alibi=0.5`."""
    if text is None:
        return None
    try:
        if text.startswith("alibi="):
            return {"alibi": float(text.removeprefix("alibi="))}
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--position-bias is '{text}': give numbers as 0,-1,-2, or alibi=0.5.") from None


def needed(options: dict[str, Any], *names: str) -> None:
    """Say which options a classes file leaves open."""
    missing = [name for name in names if options.get(name) is None]
    if missing:
        flags = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise InputError(f"{flags} must be given: only presets have rates and lengths of their own.")


DRAWN = {"attention", "loss", "entropy"}


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


def default_store(name: str, fingerprint: Any, options: dict[str, Any]) -> Path:
    """A name that is the same for the same command, so that an interrupted one goes on."""
    return Path("results") / store_name(name, {**options, "classes": fingerprint})


def show(dataset: Any, path: Path, picture: Path | None, seconds: float, as_json: bool) -> None:
    """Draw the picture and say what happened and where the result is."""
    from scansnap.results.summary import summarize

    runs = summarize(dataset)
    drawn = _draw(dataset, path, picture)
    if as_json:
        print(
            json.dumps(
                {
                    "result": str(path),
                    "picture": str(drawn) if drawn else None,
                    "seconds": round(seconds, 3),
                    "runs": runs,
                }
            )
        )
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


def _draw(dataset: Any, path: Path, picture: Path | None) -> Path | None:
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
