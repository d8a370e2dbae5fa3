"""Systems on the command line: `scansnap systems`, and `--system` and `--set` of train, flow, sweep and verify."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Flag, flag_name, form_of, read_flags
from scansnap.dynamics.options import Rates, rate_option
from scansnap.runtime.errors import InputError, unknown
from scansnap.systems.catalog import SYSTEMS
from scansnap.systems.system import Preset, System
from scansnap.validation.options import Options, from_names, options_of, required_of

SYSTEM_OPTION = typer.Option("--system", help=f"A system in place of (Y, Z): {', '.join(SYSTEMS)}, or your own.")
SET_OPTION = typer.Option(
    "--set", help="A setting or a learning rate of the system, such as hidden=16; repeat it if needed."
)

YZ = "scan-and-snap"
"""How lists call the paper's own system."""


def _rates() -> type[Options]:
    """The learning rates of all systems but (Y, Z), as options for flags."""
    users: dict[str, list[str]] = {}
    for name in SYSTEMS:
        for rate in SYSTEMS.member(name).rates:
            if rate not in ("lr_y", "lr_z"):
                users.setdefault(rate, []).append(name)
    fields = [
        (rate, Rates | None, field(default=None, metadata=rate_option(" and ".join(names))))
        for rate, names in users.items()
    ]
    return make_dataclass(
        "SystemRates",
        fields,
        bases=(Options,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": "Rates of other systems."},
    )


SystemRates = _rates()


def presets() -> dict[str, tuple[str, Preset]]:
    """The presets of all systems by name, each with the name of its system."""
    return {preset: (name, stated) for name in SYSTEMS for preset, stated in SYSTEMS.member(name).presets.items()}


def asked_system(
    name: str | None, preset: str | None, settings: Sequence[str] | None, flags: Mapping[str, Flag] | None = None
) -> AskedSystem | None:
    """The system that a command asks for; None if it asks for (Y, Z), which refuses the rates of other systems."""
    known = presets()
    if name == YZ or (name is None and preset not in known):
        if settings:
            raise InputError("--set is given without --system: it sets what a system has.")
        for rate in options_of(SystemRates):
            if flags is not None and flags.get(rate) is not None:
                raise InputError(f"{flag_name(rate)} is given, which (Y, Z) does not have: use --lr-y and --lr-z.")
        return None
    if name is not None and name not in SYSTEMS:
        raise unknown("system", name, [YZ, *SYSTEMS])
    of_preset, stated = known.get(preset or "", ("", Preset("")))
    if name is not None and of_preset not in ("", name):
        raise InputError(f"--preset {preset} belongs to the system {of_preset}: leave out --system {name}.")
    if preset is not None and not of_preset:
        raise unknown(f"preset of {name}", preset, SYSTEMS.member(name).presets if name else known)
    return AskedSystem(name or of_preset, preset, stated, settings or [])


class AskedSystem:
    """A system with the settings of a preset and of `--set`."""

    def __init__(self, name: str, preset: str | None, stated: Preset, settings: Sequence[str]) -> None:
        cls = type(SYSTEMS.member(name))
        values = dict(stated.settings)
        self._rates: dict[str, Any] = {}
        for text in settings:
            key, is_set, value = (part.strip() for part in text.partition("="))
            if not is_set:
                raise InputError(f"--set is '{text}': give a name and a value, such as hidden=16.")
            if key in options_of(cls):
                values[key] = options_of(cls)[key].type.read(f"--set {key}", value)
            elif key in SYSTEMS.member(name).rates:
                self._rates[key] = value
            else:
                raise unknown(f"setting of {name}", key, [*options_of(cls), *SYSTEMS.member(name).rates])
        self.system: System = from_names(cls, values)
        self.name, self.preset = preset or name, stated

    def options(self, cls: type[Options], defaults: Mapping[str, Any], flags: Mapping[str, Flag]) -> Any:
        """Its options from a preset, from flags and from `--set`."""
        stated = {name: value for name, value in flags.items() if value is not None}
        for name in stated:
            if name not in options_of(cls):
                raise InputError(f"{flag_name(name)} is given, which {self.system.label} does not have: leave it out.")
        values = {**defaults, **read_flags({**stated, **self._rates}, cls)}
        if missing := [name for name in required_of(cls) if name not in values]:
            words = ", ".join(map(flag_name, missing))
            listed = ", ".join(self.system.presets) or "none"
            raise InputError(f"{words} must be given, here or by a preset of the system ({listed}).")
        return from_names(cls, values)

    def sweep_options(self, flags: Mapping[str, Flag], cls: type[Options], *more: type[Options]) -> dict[str, Any]:
        """The options of a sweep over this system."""
        from scansnap.dynamics.task import flow_options, train_options

        own = (
            train_options(self.system) if "times" not in flags or flags["times"] is None else flow_options(self.system)
        )
        given = read_flags({**flags, **self._rates}, own, cls, *more, several=True)
        stated = self.preset.flow if "times" in given else self.preset.train
        return {**{name: v for name, v in stated.items() if name not in ("record", "record_every")}, **given}


def run_system(
    command: str,
    asked: AskedSystem,
    flags: Mapping[str, Flag],
    store: Path | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Train or integrate a system, draw what was recorded, and print how it went."""
    from scansnap.dynamics.flow import flow
    from scansnap.dynamics.task import flow_options, train_options
    from scansnap.dynamics.train import train
    from scansnap.figures import over_time

    system = asked.system
    if command == "train":
        options = asked.options(train_options(system), asked.preset.train, flags)
    else:
        options = asked.options(flow_options(system), asked.preset.flow, flags)
    configuration = {**options.to_dict(), "system": system.fingerprint}
    path = common.choose_store(store, f"{command}-{asked.name}", configuration, draws_beside=picture is None)
    began = time.perf_counter()
    dataset = (train if command == "train" else flow)(
        system, **vars(options), store=path, progress=False if as_json else None
    )
    seconds = time.perf_counter() - began
    drawn = common.save_picture(over_time.draw(dataset), picture or common.path_beside(path, ".png"), path)
    runs, axis = over_time.changes(dataset), "time" if "time" in dataset.dims else "step"
    if as_json:
        common.echo_json({**common.result_facts(path, drawn, seconds), "runs": runs})
        return
    if asked.preset.about:
        echo(f"{asked.name}: {asked.preset.about}")
    for run in runs[: common.SHOWN_RUNS]:
        changes = "; ".join(f"{name} {_words(change, axis)}" for name, change in run["changes"].items())
        rates = ", ".join(f"{name} {value:g}" for name, value in run["rates"].items())
        echo(f"run {run['run']} ({rates}, seed {run['seed']}): {run['status']}; {changes}")
    if len(runs) > common.SHOWN_RUNS:
        echo(f"... and {len(runs) - common.SHOWN_RUNS} more runs")
    for name in runs[0]["changes"]:
        if (meaning := dataset[name].attrs.get("long_name", name)) != name:
            echo(f"  {name}: {meaning}")
    common.echo_result(path, seconds, drawn)


def _words(change: Mapping[str, Any], axis: str) -> str:
    """How a quantity changed, such as "1.57 → 0.79 (step 2,400) → 0.99"."""
    turn = f"{change['turn']:.4g} ({axis} {change['turned_at']:,.6g}) → " if "turn" in change else ""
    return f"{change['first']:.4g} → {turn}{change['last']:.4g}"


def systems(
    name: Annotated[str | None, typer.Argument(help="A system to describe in full.")] = None,
    file: Annotated[Path | None, common.FROM_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """List the systems that train, flow, sweep and verify take."""
    common.run_parts(file)
    if name is not None and name != YZ:
        _describe(SYSTEMS.member(name), name, json)
        return
    rows = {YZ: ("the paper's (Y, Z), given by --classes", "Tian et al., NeurIPS 2023")}
    rows |= {known: (SYSTEMS.member(known).title, SYSTEMS.member(known).source) for known in SYSTEMS}
    if json:
        common.echo_json({key: {"title": title, "source": source} for key, (title, source) in rows.items()})
        return
    width = max(map(len, rows))
    for key, (title, source) in rows.items():
        echo(f"{key:{width}}  {title} ({source})")
    echo("\nscansnap systems NAME describes one; scansnap train --preset NAME shows it:")
    for preset, (_, stated) in presets().items():
        echo(f"{preset:{width}}  {stated.about}")


def _describe(system: System, name: str, as_json: bool) -> None:
    facts = {
        "title": system.title,
        "source": system.source,
        "settings": {
            key: f"{option.shell} [{form_of(option)}, default: {getattr(system, key)}]"
            for key, option in options_of(type(system)).items()
        },
        "rates": list(system.rates),
        "quantities": {quantity.name: quantity.attributes["long_name"] for quantity in system.quantities},
        "invariants": {quantity.name: quantity.attributes["long_name"] for quantity in system.invariants},
        "presets": {preset: stated.about for preset, stated in system.presets.items()},
    }
    if as_json:
        common.echo_json({name: facts})
        return
    echo(f"{name}: {system.title}" + (f" ({system.source})" if system.source else ""))
    for title, entries in facts.items():
        if isinstance(entries, dict) and entries:
            echo(f"\n{title}:")
            for key, text in entries.items():
                echo(f"  {key}: {text}")
        elif isinstance(entries, list) and entries:
            echo(f"\n{title}: {', '.join(entries)}")
