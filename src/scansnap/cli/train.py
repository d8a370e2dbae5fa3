"""`scansnap train` and `scansnap flow`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from scansnap.cli import common
from scansnap.cli.flags import command
from scansnap.cli.option_flags import option_flags
from scansnap.cli.request import ALL_PRESETS, CLASSES, CONFIG, PRESET, read_request, run_request
from scansnap.cli.system import SET, SYSTEM, SystemRates
from scansnap.dynamics.options import FlowOptions, TrainOptions


@command(
    common.FROM,
    common.OVERWRITE_FLAG,
    *option_flags(TrainOptions, SystemRates, defaults=True),
    listed=ALL_PRESETS,
)
def train(
    preset: Annotated[str | None, PRESET] = None,
    config: Annotated[Path | None, CONFIG] = None,
    classes: Annotated[str | None, CLASSES] = None,
    system: Annotated[str | None, SYSTEM] = None,
    settings: Annotated[tuple[str, ...], SET] = (),
    store: Annotated[Path | None, common.STORE] = None,
    picture: Annotated[Path | None, common.PICTURE] = None,
    json: Annotated[bool, common.JSON] = False,
    **flags: Any,
) -> None:
    """Train the 1-layer transformer on sequence classes and watch its attention scan and snap.

    Options that you do not give come from the preset (by default scan-and-snap), then from the defaults below. With
    --classes alone, you must give rates and steps. Several rates or seeds make several runs side by side: the first
    with the first, and so on; `scansnap sweep` takes every combination.

    The result is written during training. If the command is interrupted, run it again: it resumes and gives the same
    numbers.
    """
    request = read_request(
        "train", flags, preset=preset, classes=classes, system=system, settings=settings, config=config
    )
    run_request(request, store, picture, json)


@command(common.FROM, common.OVERWRITE_FLAG, *option_flags(FlowOptions, SystemRates, defaults=True), listed=ALL_PRESETS)
def flow(
    preset: Annotated[str | None, PRESET] = None,
    classes: Annotated[str | None, CLASSES] = None,
    system: Annotated[str | None, SYSTEM] = None,
    settings: Annotated[tuple[str, ...], SET] = (),
    store: Annotated[Path | None, common.STORE] = None,
    picture: Annotated[Path | None, common.PICTURE] = None,
    json: Annotated[bool, common.JSON] = False,
    **flags: Any,
) -> None:
    """Integrate the population dynamics in continuous time, up to 10^12 steps and beyond, at any rates.

    One unit of time is one expected update with batch size 1 at T → ∞. By default times are log:1:1e12:97,
    and rates and classes come from the preset (by default syn-small). Several rates or seeds make several runs, side by
    side.
    """
    request = read_request("flow", flags, preset=preset, classes=classes, system=system, settings=settings)
    run_request(request, store, picture, json)
