"""`scansnap watch show`, `checkpoints` and `compare`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Argument, Flag, command
from scansnap.runtime.errors import InputError, count_items

if TYPE_CHECKING:
    import xarray as xr

PAGE = Flag("Write verdicts, maps, lines and patterns to one page (.html).")


@command(common.FROM, common.OVERWRITE_FLAG)
def show(
    store: Annotated[Path, Argument("What ss.watch(..., store=...) writes.")],
    quantity: Annotated[str, Flag("The quantity on the map.")] = "normalized_entropy",
    once: Annotated[bool, Flag("Print the last snapshot and end.")] = False,
    refresh: Annotated[float, Flag("Seconds between updates of the terminal.")] = 2.0,
    page: Annotated[Path | None, PAGE] = None,
    json: Annotated[bool, common.JSON] = False,
) -> None:
    """Show what a watch has recorded: live in the terminal while training goes on, until interrupted, or as a page."""
    from rich.console import Console

    from scansnap.monitor.store import read_snapshots
    from scansnap.monitor.terminal import follow, heading, view

    if not refresh > 0:
        raise InputError(f"--refresh is {refresh:g}: give a number of seconds above 0.")
    snapshots = read_snapshots(store)
    if page is not None or json:
        _report(snapshots, page, json)
    elif once:
        Console().print(view(snapshots, quantity, heading(snapshots, store, is_live=False)))
    else:
        follow(store, quantity, Console(), refresh=refresh)


@command(common.OVERWRITE_FLAG)
def checkpoints(
    folder: Annotated[
        Path, Argument("A folder of Hugging Face checkpoints whose names have their steps, such as checkpoint-500.")
    ],
    probe: Annotated[Path, Flag("A text file that the model reads at each snapshot.")],
    store: Annotated[
        Path | None, Flag("Where to write the snapshots (zarr), and to resume from; by default beside the folder.")
    ] = None,
    page: Annotated[Path | None, PAGE] = None,
    windows: Annotated[int, Flag("Windows of the text.", least=1)] = 8,
    length: Annotated[int, Flag("Tokens of a window, at most.", least=4)] = 128,
    device: Annotated[str, Flag("Where the model runs: cpu or cuda.")] = "cpu",
    allow_pickles: Annotated[bool, Flag("Open pickled weights too; opening a pickle can run any code in it.")] = False,
    json: Annotated[bool, common.JSON] = False,
) -> None:
    """Take a snapshot of each checkpoint of a training, and make the same record and page as a watch of it.

    Weights are read from safetensors, and no code of a checkpoint is run.
    """
    from scansnap.monitor.checkpoints import find_checkpoints, step_of, watch_checkpoints
    from scansnap.runtime.progress import progress_bar

    try:
        text = probe.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"--probe is '{probe}', which cannot be read ({error.strerror}): give a text file.") from None
    series = find_checkpoints(folder)
    place = folder.resolve()
    if place in series.values() and step_of(place) is not None:  # one of a series
        place = place.parent
    path = store or place.with_name(f"{place.name}-attention.zarr")
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    with progress_bar("reading checkpoints", len(series), False if json else None) as show_progress:
        snapshots = watch_checkpoints(
            folder,
            text,
            store=path,
            windows=windows,
            length=length,
            allow_pickles=allow_pickles,
            device=device,
            on_checkpoint=lambda number, count, step: show_progress(len(series) - count + number, f"(step {step:,})"),
            on_note=lambda sentence: echo(sentence, error=True),
        )
    _report(snapshots, page, json)
    if not json:
        echo(f"snapshots: {path}   (show them with scansnap watch show {path} --once)")


@command()
def compare(
    first: Annotated[Path, Argument("What ss.watch(..., store=...) wrote of one run.")],
    second: Annotated[Path, Argument("The same of another run.")],
    by_rate: Annotated[bool, Flag("Align by the sum of the learning rates so far, not by step.")] = False,
    tolerance: Annotated[
        float, Flag("The largest difference that counts as none; of logits, times 256.", least=0)
    ] = 0.1,
    json: Annotated[bool, common.JSON] = False,
) -> None:
    """List which heads of two runs differ, from which step on, in what, and which verdicts hold of one run alone.

    Those that differ first come first.
    """
    from scansnap.monitor.compare import compare_runs, describe_differences, verdicts_of_one
    from scansnap.monitor.store import read_snapshots

    runs = read_snapshots(first), read_snapshots(second)
    words, found = compare_runs(*runs, by_rate=by_rate, tolerance=tolerance)
    if json:
        common.echo_json([asdict(difference) for difference in found])
        return
    echo(words)
    sizes = [f"{run.sizes['layer']} x {run.sizes['head']}" for run in runs]
    if sizes[0] != sizes[1]:
        echo(f"layers x heads are {sizes[0]} and {sizes[1]}: only means and extremes over all heads are compared")
    for line in describe_differences(found):
        echo(line)
    if not found:
        echo(f"no quantity differs by more than {tolerance:g} and stays different until the last common snapshot")
    for name, (run, other) in (("first", runs), ("second", runs[::-1])):
        echo(f"verdicts of the {name} run alone: {verdicts_of_one(run, other)}")


def _report(snapshots: xr.Dataset, page: Path | None, json: bool) -> None:
    """Write the page, and print verdicts."""
    from scansnap.monitor.dataset import split_missing
    from scansnap.monitor.verdicts import by_kind, headline, in_words, judge_heads, unjudged_verdicts

    if page is not None:
        from scansnap.report.watch_page import write_watch_page

        write_watch_page(page, snapshots)
    _, missing = split_missing(snapshots)
    if json:
        facts = {
            "steps": snapshots["step"].values.tolist(),
            "missing": [{"step": step, "reason": reason} for step, reason in missing],
            "verdicts": [asdict(verdict) for verdict in judge_heads(snapshots)],
            "not_judged": unjudged_verdicts(snapshots),
            "page": str(page) if page else None,
        }
        common.echo_json(facts)
        return
    kinds = by_kind(snapshots)
    absent = (
        f", {len(missing)} of them missing, the last at step {missing[-1][0]:,} ({missing[-1][1]})" if missing else ""
    )
    echo(f"{count_items(snapshots.sizes['step'], 'snapshot')}{absent}; heads by verdict: {in_words(kinds)}")
    echo(headline(snapshots, kinds))
    if page is not None:
        echo(f"page: {page}   (open it in a browser)")
