"""The looks of a watch in the terminal: a map of its heads, and what needs attention."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import numpy as np
import xarray as xr
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scansnap.base.errors import InputError, unknown
from scansnap.base.printable import printable
from scansnap.monitor.store import read_looks
from scansnap.monitor.verdicts import Severity, judge_heads

STYLES: dict[Severity, str] = {"alarm": "bold red", "notice": "yellow", "pattern": "default"}

LOW, HIGH = (0xED, 0xF2, 0xF6), (0x08, 0x45, 0x6F)
"""The colors of the smallest and the largest number, as on the page."""

DENSE = 16
"""With more heads than this, cells have no numbers, so that they fit on a line."""

SHOWN_HEADS = 3
"""Heads that are shown of each kind of verdict; the others are counted."""


def follow(
    store: Path, quantity: str, console: Console, *, refresh: float = 2.0, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show the last look, and each later one as it comes, until interrupted."""
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        try:
            while True:
                looks = read_looks(store)
                live.update(view(looks, quantity, heading(looks, store)), refresh=True)
                sleep(refresh)
        except KeyboardInterrupt:
            return


def view(looks: xr.Dataset, quantity: str, heading: str) -> RenderableType:
    """What the terminal shows: where the training is, the map, and the verdicts, most pressing first."""
    names = [str(name) for name, values in looks.data_vars.items() if values.dims == ("step", "layer", "head")]
    if quantity not in names:
        raise unknown("quantity", quantity, names)
    if not looks.sizes["step"]:
        raise InputError("there are no looks yet: they come with the training's first steps.")
    whole = np.flatnonzero(looks["status"].values == "ok")
    parts: list[RenderableType] = [_text(heading, "bold")]
    if len(whole) < looks.sizes["step"]:
        failed = looks.isel(step=np.flatnonzero(looks["status"].values != "ok")[-1])
        count = looks.sizes["step"] - len(whole)
        reason = f"the last at step {int(failed['step']):,} ({failed['reason'].item()})"
        parts.append(_text(f"missing looks: {count}, {reason}", "yellow"))
    if len(whole):
        parts += [Text(), _text(_title(looks, quantity)), _map(looks[quantity].isel(step=whole[-1]).values)]
    return Group(*parts, Text(), *_verdicts(looks))


def _text(words: str, style: str = "") -> Text:
    """Words of names that users give."""
    return Text(printable(words), style=style)


def heading(looks: xr.Dataset, store: Path) -> str:
    """The last look, how long ago it was, and when the next is due."""
    steps, every = looks["step"].values.tolist(), int(looks.attrs.get("every", 0))
    if not steps:
        return f"{looks.attrs.get('model', '')}: no look yet"
    age = timedelta(seconds=round(max(0.0, time.time() - (store / ".zmetadata").stat().st_mtime)))
    after = f"; next at step {(steps[-1] // every + 1) * every:,}" if every else ""
    return f"{looks.attrs.get('model', '')}: look {len(steps):,} at step {steps[-1]:,}, {age} ago{after}"


def _title(looks: xr.Dataset, quantity: str) -> str:
    attributes = looks[quantity].attrs
    units = attributes.get("units", "1")
    return f"{quantity}: {attributes.get('long_name', quantity)}" + (f", in {units}" if units != "1" else "")


def _map(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Table:
    """A cell for each layer and head, with its number; colors go from the smallest to the largest."""
    measured = values[np.isfinite(values)]
    low, high = (float(measured.min()), float(measured.max())) if len(measured) else (0.0, 1.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    dense = values.shape[1] > DENSE
    table = Table(box=None, padding=0, show_edge=False, header_style="dim")
    table.add_column("", style="dim", justify="right", no_wrap=True)
    for head in range(values.shape[1]):
        table.add_column("" if dense and head % 4 else str(head), justify="left" if dense else "right", no_wrap=True)
    for layer, row in enumerate(values):
        cells = [_cell(value, (value - low) / (high - low) if high > low else 0.5, dense) for value in row]
        table.add_row(f"layer {layer} ", *cells)
    return table


def _cell(value: float, level: float, dense: bool) -> Text:
    if not np.isfinite(value):
        return Text("··" if dense else " ·", style="dim")
    red, green, blue = (round(a + level * (b - a)) for a, b in zip(LOW, HIGH, strict=True))
    color = f"rgb({red},{green},{blue})"
    if dense:
        return Text("██", style=color)
    return Text(f"  {short(value)}", style=f"{'#ffffff' if level > 0.55 else '#000000'} on {color}")


def short(value: float) -> str:
    """A number in three letters, or a few more if it is large."""
    if abs(value) < 0.995:
        return f"{value:.2f}".replace("0.", ".", 1)
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:3.0f}"


def _verdicts(looks: xr.Dataset) -> list[RenderableType]:
    """The evidence for some heads of each kind of verdict, most pressing first, and the number of the others."""
    verdicts = judge_heads(looks)
    if not verdicts:
        return [Text("no verdict on any head yet")]
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for title in ("", "head", "verdict", "since", "evidence"):
        table.add_column(title, no_wrap=title != "evidence")
    for name, group in groupby(verdicts, lambda verdict: verdict.name):
        heads = list(group)
        style = STYLES[heads[0].severity]
        for verdict in heads[:SHOWN_HEADS]:
            head = f"layer {verdict.layer}, {verdict.head}"
            words = (verdict.severity, head, name, f"{verdict.since:,}", verdict.evidence)
            table.add_row(*(_text(word, style) for word in words))
        if rest := heads[SHOWN_HEADS:]:
            table.add_row("", Text(f"{len(rest)} more", style="dim"), _text(name, "dim"))
    return [table]
