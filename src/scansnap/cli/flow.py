"""`scansnap flow`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from scansnap.cli import common
from scansnap.cli.flags import Flag, read_flags, with_flags
from scansnap.dynamics.options import FlowOptions, TimesType
from scansnap.validation.options import from_names, values_of

TIMES = "log:1:1e12:97"
"""The times that are recorded by default."""


@with_flags(FlowOptions, defaults=True)
def command(
    preset: Annotated[str | None, common.PRESET_OPTION] = None,
    classes: Annotated[str | None, common.CLASSES_OPTION] = None,
    parts: Annotated[Path | None, common.FROM_OPTION] = None,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[Path | None, common.PICTURE_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Integrate the population dynamics in continuous time, up to 10^12 steps and beyond, at any rates.

    One unit of time is one expected update with batch size 1 at T → ∞. By default times are log:1:1e12:97,
    and rates and classes come from the preset (by default syn-small). Several rates or seeds make several runs, side by
    side.
    """
    common.check_picture(picture)
    common.run_parts(parts)
    name, source, experiment = common.setting(preset, classes)
    times = TimesType().read("--times", TIMES)
    words: dict[str, Any] = {"times": times}
    if experiment is not None:
        words = values_of(experiment.flow_options(tuple(times)))
        del words["record"]
    words.update(read_flags(flags, FlowOptions))
    common.check_required("flow", classes, FlowOptions, words)
    options = from_names(FlowOptions, words)
    path = store or common.default_store(f"flow-{name}", {**options.to_dict(), "classes": source.fingerprint})

    from scansnap.dynamics.flow import flow

    common.say_compiling("flow")
    began = time.perf_counter()
    dataset = flow(source, options, store=path, progress=False if json else None)
    common.show(dataset, path, picture, time.perf_counter() - began, json)
