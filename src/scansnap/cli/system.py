"""Systems on the command line: `scansnap systems`, and `--system` and `--set` of train, flow, sweep and verify."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from functools import cache
from typing import Annotated, Any

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Argument, Flag, command
from scansnap.cli.option_flags import form_of
from scansnap.dynamics.options import Rates, RatesType, rate_option
from scansnap.dynamics.published import PUBLISHED
from scansnap.runtime.errors import InputError, PaperWarning, unknown
from scansnap.systems.catalog import OWN_SYSTEMS, SYSTEMS, YZ
from scansnap.systems.system import Preset, System
from scansnap.validation.options import Options, from_names, options_of

SYSTEM = Flag(f"A system in place of (Y, Z): {', '.join(OWN_SYSTEMS)}, or your own.")
SET = Flag("A setting or a learning rate of the system, such as hidden=16; repeat it if needed.", name="--set")


def _rates() -> type[Options]:
    """The learning rates of this package's systems but (Y, Z), as options for flags."""
    users: dict[str, list[str]] = {}
    for name in OWN_SYSTEMS:
        for rate in SYSTEMS.member(name).rates:
            if rate not in ("lr_y", "lr_z"):
                users.setdefault(rate, []).append(name)
    fields = [(rate, Rates | None, rate_option(" and ".join(names), default=None)) for rate, names in users.items()]
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
    """The presets of all systems by name, each with the name of its system; the first of one name counts."""
    return _first_presets(tuple(name for name in SYSTEMS if name not in OWN_SYSTEMS))


@cache
def _first_presets(further: tuple[str, ...]) -> dict[str, tuple[str, Preset]]:
    collected = _presets_of(OWN_SYSTEMS)
    for preset, stated in _presets_of(further).items():
        if preset in PUBLISHED or preset in collected:
            words = f"the preset {preset} of {stated[0]} is left out: the name exists already."
            warnings.warn(words, PaperWarning, stacklevel=2)
        else:
            collected[preset] = stated
    return collected


def _presets_of(systems: Iterable[str]) -> dict[str, tuple[str, Preset]]:
    return {preset: (name, stated) for name in systems for preset, stated in SYSTEMS.member(name).presets.items()}


@dataclass(frozen=True)
class SystemChoice:
    """A system, with what a preset and `--set` state."""

    name: str  # of the preset, or else of the system
    system: System
    preset: Preset
    rates: Mapping[str, Any]  # learning rates of `--set`


def choose_system(name: str | None, preset: str | None, settings: Sequence[str]) -> SystemChoice | None:
    """The system that a command asks for; None if it asks for (Y, Z)."""
    known = _presets_of(OWN_SYSTEMS)
    if preset is not None and preset not in (*PUBLISHED, *known):
        known = presets()  # those of installed papers too
    if name == YZ or (name is None and preset not in known):
        if settings:
            raise InputError("--set is given without --system: it sets what a system has.")
        return None
    if name is not None and name not in SYSTEMS:
        raise unknown("system", name, [YZ, *SYSTEMS])
    if preset is not None and preset not in known:
        raise unknown(f"preset of {name}", preset, SYSTEMS.member(name).presets if name else known)
    owner, stated = (str(name), Preset("")) if preset is None else known[preset]
    if name not in (None, owner):
        raise InputError(f"--preset {preset} belongs to the system {owner}: leave out --system {name}.")
    values, rates = _read_settings(owner, settings)
    system = from_names(type(SYSTEMS.member(owner)), {**stated.settings, **values})
    return SystemChoice(preset or owner, system, stated, rates)


def _read_settings(name: str, settings: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the learning rates of a system that `--set` states."""
    member = SYSTEMS.member(name)
    types = {key: option.type for key, option in options_of(type(member)).items()}
    values: dict[str, Any] = {}
    rates: dict[str, Any] = {}
    for text in settings:
        key, is_set, value = (part.strip() for part in text.partition("="))
        if not is_set:
            raise InputError(f"--set is '{text}': give a name and a value, such as hidden=16.")
        if key in types:
            values[key] = types[key].read(f"--set {key}", value)
        elif key in member.rates:
            rates[key] = RatesType().read(f"--set {key}", value)
        else:
            raise unknown(f"setting of {name}", key, [*types, *member.rates])
    return values, rates


@command(common.FROM)
def systems(
    name: Annotated[str | None, Argument("A system to describe in full.")] = None,
    json: Annotated[bool, common.JSON] = False,
) -> None:
    """List the systems that train, flow, sweep and verify take."""
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
