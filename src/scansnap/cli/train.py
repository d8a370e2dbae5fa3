"""`scansnap train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from scansnap.cli import common
from scansnap.cli.flags import Flag, read_flags, with_flags
from scansnap.data.source import DataSource
from scansnap.dynamics.options import TrainOptions
from scansnap.results.quantities import RecordType
from scansnap.runtime.errors import InputError
from scansnap.validation.options import from_names, values_of


@with_flags(TrainOptions, defaults=True)
def command(
    preset: Annotated[str | None, common.PRESET_OPTION] = None,
    config: Annotated[Path | None, common.CONFIG_OPTION] = None,
    classes: Annotated[str | None, common.CLASSES_OPTION] = None,
    parts: Annotated[Path | None, common.FROM_OPTION] = None,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[Path | None, common.PICTURE_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Train the 1-layer transformer on sequence classes and watch its attention scan and snap.

    Options that are not given come from the preset (by default syn-small), and where it says nothing they are as shown
    below; with --classes alone, rates and steps must be given. Several rates or seeds make several runs, side by side:
    the first with the first, and so on; `scansnap sweep` takes every combination.

    The result is written during training: after an interruption, start the same command again and it continues to the
    same numbers.
    """
    common.run_parts(parts)
    name, source, words = _setting(preset, config, classes)
    own = read_flags(flags, TrainOptions)
    if own.get("optimizer", "sgd") != "sgd" and "momentum" not in own:
        words.pop("momentum", None)  # the setting's momentum belongs to the setting's optimizer
    words.update(own)
    common.check_required("train", classes, TrainOptions, words)
    options = from_names(TrainOptions, words)
    common.check_picture(picture, RecordType().plain(options.record) if "record" in own else common.DRAWN)  # type: ignore[arg-type]
    path = store or common.default_store(f"train-{name}", {**options.to_dict(), "classes": source.fingerprint})

    from scansnap.dynamics.train import train

    common.say_compiling("training" if options.layers == 1 else "layers")
    began = time.perf_counter()
    dataset = train(source, options, store=path, progress=False if json else None)
    common.show(dataset, path, picture, time.perf_counter() - began, json)


def _setting(preset: str | None, config: Path | None, classes: str | None) -> tuple[str, DataSource, dict[str, Any]]:
    """The name, the classes and the options that a preset or a file gives."""
    if config is None:
        name, source, experiment = common.setting(preset, classes)
        return name, source, values_of(experiment.options) if experiment is not None else {}
    if preset is not None:
        raise InputError("both --preset and --config are given: choose one source of options.")
    from scansnap.dynamics.sweeps.config import read_experiment

    file_source, options = read_experiment(config)
    return config.stem, common.classes_of(classes) if classes else file_source, values_of(options)
