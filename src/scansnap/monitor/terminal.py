"""The snapshots of a watch in the terminal: what is wrong, a map of the heads, and what they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scansnap.monitor.dataset import recorded_quantities, split_missing
from scansnap.monitor.store import read_snapshots
from scansnap.monitor.verdict_rules import Severity
from scansnap.monitor.verdicts import LayerVerdict, by_kind, headline, in_words, unjudged_verdicts
from scansnap.runtime.errors import InputError, printable, unknown
from scansnap.storage.folder import MANIFEST

SEVERITY_STYLES: dict[Severity, str] = {"alarm": "bold red", "notice": "yellow", "pattern": "default"}

LOW_COLOR, HIGH_COLOR = (0xED, 0xF2, 0xF6), (0x08, 0x45, 0x6F)
"""The colors of the smallest and the largest number, as on the page."""

MAX_NUMBERED_HEADS = 16
"""With more heads than this, cells have no numbers, so that they fit on a line."""

SHADES = "░▒▓█"
"""Cells without numbers where there are no colors."""

MAX_LAYERS = 3
"""Layers that are shown of each kind of verdict; the heads of the others are counted."""


def follow(
    store: Path, quantity: str, console: Console, *, refresh: float = 2.0, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show the last snapshot, and each later one as it comes, until interrupted."""
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        try:
            while True:
                snapshots = read_snapshots(store)
                live.update(view(snapshots, quantity, heading(snapshots, store)), refresh=True)
                sleep(refresh)
        except KeyboardInterrupt:
            return


def view(snapshots: xr.Dataset, quantity: str, heading: str) -> RenderableType:
    """What the terminal shows, most urgent first, because it may not fit all.

    Where the training is, what is missing, how many heads have which verdict, the alarms, the map, the other verdicts.
    """
    names = recorded_quantities(snapshots)
    if quantity not in names:
        raise unknown("quantity", quantity, names)
    if not snapshots.sizes["step"]:
        raise InputError("there are no snapshots yet: they come with the training's first steps.")
    parts: list[RenderableType] = [_text(heading, "bold")]
    coverage = str(snapshots.attrs.get("coverage", ""))
    if "not captured" in coverage:
        parts.append(_text(coverage, SEVERITY_STYLES["notice"]))
    measured, missing = split_missing(snapshots)
    if missing:
        step, reason = missing[-1]
        parts.append(
            _text(f"missing snapshots: {len(missing)}, the last at step {step:,} ({reason})", SEVERITY_STYLES["notice"])
        )
    kinds = by_kind(snapshots)
    parts += [_text(headline(snapshots, kinds), "bold"), _text(f"heads by verdict: {in_words(kinds)}")]
    alarms = {name: layers for name, layers in kinds.items() if layers[0].heads[0].severity == "alarm"}
    for name, layers in alarms.items():
        for layer in layers[:MAX_LAYERS]:
            words = f"alarm: {layer.where}: {name} since step {layer.since}: {layer.evidence}"
            parts.append(_text(words, SEVERITY_STYLES["alarm"]))
        if rest := _beyond(layers):
            parts.append(_text(f"alarm: {rest} more heads: {name}", SEVERITY_STYLES["alarm"]))
    if measured.sizes["step"]:
        parts += [Text(), _text(_title(snapshots, quantity)), _Map(measured[quantity].isel(step=-1).values)]
    if others := {name: layers for name, layers in kinds.items() if name not in alarms}:
        parts += [Text(), _table(others)]
    if unjudged := unjudged_verdicts(snapshots):
        needs = "; ".join(f"{name} (needs {', '.join(quantities)})" for name, quantities in unjudged.items())
        parts.append(_text(f"not judged: {needs}", "dim"))
    return Group(*parts)


def _text(words: str, style: str = "") -> Text:
    """Words of names that users give."""
    return Text(printable(words), style=style)


def heading(snapshots: xr.Dataset, store: Path, *, is_live: bool = True) -> str:
    """The last snapshot, how long ago it was, and when the next is due if a training is followed."""
    steps, every = snapshots["step"].values.tolist(), int(snapshots.attrs.get("every", 0))
    if not steps:
        return f"{snapshots.attrs.get('model', '')}: no snapshot yet"
    age = timedelta(seconds=round(max(0.0, time.time() - (store / MANIFEST).stat().st_mtime)))
    after = f"; next at step {(steps[-1] // every + 1) * every:,}" if every and is_live else ""
    return f"{snapshots.attrs.get('model', '')}: snapshot {len(steps):,} at step {steps[-1]:,}, {age} ago{after}"


def _title(snapshots: xr.Dataset, quantity: str) -> str:
    attributes = snapshots[quantity].attrs
    units = attributes.get("units", "1")
    return f"{quantity}: {attributes.get('long_name', quantity)}" + (f", in {units}" if units != "1" else "")


@dataclass(frozen=True)
class _Map:
    """A cell for each layer and head, with its number; colors or shades go from the smallest to the largest."""

    values: NDArray[np.float64]  # (layer, head)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        measured = self.values[np.isfinite(self.values)]
        low, high = (float(measured.min()), float(measured.max())) if len(measured) else (0.0, 1.0)
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        is_dense, is_plain = self.values.shape[1] > MAX_NUMBERED_HEADS, console.color_system is None
        cell = _plain_cell if is_plain and is_dense else _dense_cell if is_dense else _cell
        table = Table(box=None, padding=0, show_edge=False, header_style="dim")
        table.add_column("head", style="dim", justify="right", no_wrap=True)
        table.add_column("", width=1)
        for head in range(self.values.shape[1]):
            name = "" if is_dense and head % 4 else str(head)
            table.add_column(name, justify="left" if is_dense else "right", no_wrap=True)
        for layer, row in enumerate(self.values):
            levels = (row - low) / (high - low) if high > low else np.full_like(row, 0.5)
            table.add_row(f"layer {layer}", "", *map(cell, row.tolist(), levels.tolist()))
        yield table
        if is_dense:
            scale = Text.assemble(f"scale: {short(low).strip()} ", *(cell(0.0, i / 7) for i in range(8)))
            yield scale.append(f" {short(high).strip()}")


def _color(level: float) -> str:
    red, green, blue = (round(a + level * (b - a)) for a, b in zip(LOW_COLOR, HIGH_COLOR, strict=True))
    return f"rgb({red},{green},{blue})"


def _cell(value: float, level: float) -> Text:
    if not np.isfinite(value):
        return Text(" ·", style="dim")
    return Text(f"  {short(value)}", style=f"{'#ffffff' if level > 0.55 else '#000000'} on {_color(level)}")


def _dense_cell(value: float, level: float) -> Text:
    return Text("██", style=_color(level)) if np.isfinite(value) else Text("··", style="dim")


def _plain_cell(value: float, level: float) -> Text:
    return Text(2 * SHADES[min(int(level * len(SHADES)), len(SHADES) - 1)] if np.isfinite(value) else "··")


def short(value: float) -> str:
    """A number in three letters, or a few more if it is large."""
    if abs(value) < 0.995:
        return f"{value:.2f}".replace("0.", ".", 1)
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:3.0f}"


def _table(kinds: Mapping[str, Sequence[LayerVerdict]]) -> Table:
    """The evidence for a head of some layers of each kind of verdict, and the number of the others."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for title in ("", "where", "verdict", "since", "evidence"):
        table.add_column(title, no_wrap=title != "evidence")
    for name, layers in kinds.items():
        style = SEVERITY_STYLES[layers[0].heads[0].severity]
        for layer in layers[:MAX_LAYERS]:
            words = (layer.heads[0].severity, layer.where, name, layer.since, layer.evidence)
            table.add_row(*(_text(word, style) for word in words))
        if rest := _beyond(layers):
            table.add_row("", Text(f"{rest} more heads", style="dim"), _text(name, "dim"))
    return table


def _beyond(layers: Sequence[LayerVerdict]) -> int:
    """The heads of the layers that are not shown."""
    return sum(layer.size for layer in layers[MAX_LAYERS:])
