"""`scansnap flow`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from scansnap.base.errors import InputError
from scansnap.cli import common


def command(
    preset: Annotated[str | None, common.FLOW_PRESET_OPTION] = None,
    classes: Annotated[Path | None, common.CLASSES_OPTION] = None,
    lr_y: Annotated[str | None, common.LR_Y_OPTION] = None,
    lr_z: Annotated[str | None, common.LR_Z_OPTION] = None,
    times: Annotated[
        str, typer.Option("--times", help="Times to record, as 1,1e3,1e6, or log:FIRST:LAST:COUNT.")
    ] = "log:1:1e12:97",
    init: Annotated[str | None, common.INIT_OPTION] = None,
    decoder_gradient: Annotated[str | None, common.GRADIENT_OPTION] = None,
    normalization: Annotated[str | None, common.NORMALIZATION_OPTION] = None,
    residual: Annotated[bool | None, common.RESIDUAL_OPTION] = None,
    heads: Annotated[int | None, common.HEADS_OPTION] = None,
    init_scale_z: Annotated[float | None, common.INIT_SCALE_OPTION] = None,
    attention_prior: Annotated[str | None, common.PRIOR_OPTION] = None,
    position_bias: Annotated[str | None, common.BIAS_OPTION] = None,
    learn_position_bias: Annotated[bool | None, common.LEARN_BIAS_OPTION] = None,
    seeds: Annotated[str | None, common.SEEDS_OPTION] = None,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[Path | None, common.PICTURE_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Integrate the population dynamics in continuous time, up to 10^12 steps and beyond in about a second.

    One unit of time is one expected update with batch size 1 at T → ∞.
    """
    common.check_picture(picture)
    name, chosen, options = common.setting(preset, classes, "flow")
    given: dict[str, Any] = {
        "lr_y": common.numbers("--lr-y", lr_y),
        "lr_z": common.numbers("--lr-z", lr_z),
        "seeds": common.integers("--seeds", seeds),
        "times": _times(times),
        "init": init,
        "decoder_gradient": decoder_gradient,
        "normalization": normalization,
        "residual": residual,
        "heads": heads,
        "init_scale_z": init_scale_z,
        "attention_prior": common.prior(attention_prior),
        "position_bias": common.bias(position_bias),
        "learn_position_bias": learn_position_bias,
    }
    options.update({key: value for key, value in given.items() if value is not None})
    common.needed(options, "lr_y", "lr_z")
    path = store or common.default_store(f"flow-{name}", chosen.fingerprint, options)

    from scansnap.dynamics.flow import flow

    began = time.perf_counter()
    dataset = flow(chosen, **options, store=path, progress=False if json else None)
    common.show(dataset, path, picture, time.perf_counter() - began, json)


def _times(text: str) -> list[float]:
    """A list of times, or `log:FIRST:LAST:COUNT`."""
    if not text.startswith("log:"):
        return common.numbers("--times", text) or []
    try:
        first, last, count = text[4:].split(":")
        found = np.geomspace(float(first), float(last), int(count))
    except ValueError:
        raise InputError(f"--times is '{text}': give times as 1,1e3,1e6, or log:FIRST:LAST:COUNT.") from None
    return [float(t) for t in found]
