"""`scansnap train`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.base.errors import ScanSnapError
from scansnap.cli import common
from scansnap.dynamics.options import OPTIMIZERS, RECORDABLE


def command(
    preset: Annotated[str | None, common.PRESET_OPTION] = None,
    classes: Annotated[Path | None, common.CLASSES_OPTION] = None,
    lr_y: Annotated[str | None, common.LR_Y_OPTION] = None,
    lr_z: Annotated[str | None, common.LR_Z_OPTION] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Updates.")] = None,
    batch_size: Annotated[
        str | None,
        typer.Option("--batch-size", help="Sequences per update, or none for the expected update over classes."),
    ] = None,
    seq_len: Annotated[
        str | None, typer.Option("--seq-len", help="Sequence length T with the query, or inf for T → ∞.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option("--optimizer", help=f"One of {', '.join(OPTIMIZERS)}.")] = None,
    momentum: Annotated[float | None, typer.Option("--momentum", help="Momentum of sgd, from 0 to below 1.")] = None,
    init: Annotated[str | None, common.INIT_OPTION] = None,
    decoder_gradient: Annotated[str | None, common.GRADIENT_OPTION] = None,
    normalization: Annotated[str | None, common.NORMALIZATION_OPTION] = None,
    residual: Annotated[bool | None, common.RESIDUAL_OPTION] = None,
    heads: Annotated[int | None, common.HEADS_OPTION] = None,
    layers: Annotated[int | None, common.LAYERS_OPTION] = None,
    nonlinearity: Annotated[str | None, common.NONLINEARITY_OPTION] = None,
    init_scale_z: Annotated[float | None, common.INIT_SCALE_OPTION] = None,
    attention_prior: Annotated[str | None, common.PRIOR_OPTION] = None,
    position_bias: Annotated[str | None, common.BIAS_OPTION] = None,
    learn_position_bias: Annotated[bool | None, common.LEARN_BIAS_OPTION] = None,
    num_sequences: Annotated[int | None, common.NUM_SEQUENCES_OPTION] = None,
    seeds: Annotated[str | None, common.SEEDS_OPTION] = None,
    record_every: Annotated[int | None, typer.Option("--record-every", help="Updates between records.")] = None,
    record: Annotated[
        str | None, typer.Option("--record", help=f"What to keep, separated by commas: {', '.join(RECORDABLE)}.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="float32 or float64.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu or cuda.")] = None,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[Path | None, common.PICTURE_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Train the 1-layer transformer on sequence classes and watch its attention scan and snap.

    Options that are not given come from the preset (syn-small unless told); with --classes, rates and steps must be
    given.

    The result is written as it goes: start the same command again after an interruption and it continues to the same
    numbers.
    """
    kept = None if record is None else [name.strip() for name in record.split(",")]
    common.check_picture(picture, common.DRAWN if kept is None else kept)
    name, chosen, options = common.setting(preset, classes, "train")
    given: dict[str, Any] = {
        "lr_y": common.numbers("--lr-y", lr_y),
        "lr_z": common.numbers("--lr-z", lr_z),
        "seeds": common.integers("--seeds", seeds),
        "seq_len": common.length(seq_len),
        "record": kept,
        "steps": steps, "optimizer": optimizer, "momentum": momentum, "init": init, "dtype": dtype, "device": device,
        "decoder_gradient": decoder_gradient, "record_every": record_every, "normalization": normalization,
        "residual": residual, "heads": heads, "init_scale_z": init_scale_z, "num_sequences": num_sequences,
        "attention_prior": common.prior(attention_prior), "position_bias": common.bias(position_bias),
        "learn_position_bias": learn_position_bias, "layers": layers, "nonlinearity": nonlinearity,
    }  # fmt: skip
    if optimizer is not None and optimizer != "sgd" and momentum is None:
        options.pop("momentum", None)  # the preset's momentum belongs to the preset's optimizer
    options.update({key: value for key, value in given.items() if value is not None})
    sized, size = common.batch(batch_size)
    if sized:
        options["batch_size"] = size
    common.needed(options, "lr_y", "lr_z", "steps")
    path = store or common.default_store(f"train-{name}", chosen.fingerprint, options)

    from scansnap.dynamics.kernel import compiled_before
    from scansnap.dynamics.train import train

    if not compiled_before():
        print("compiling the kernel, once on this machine: about fifteen seconds", file=sys.stderr)
    began = time.perf_counter()
    try:
        dataset = train(chosen, **options, store=path, progress=False if json else None)
    except KeyboardInterrupt:
        raise ScanSnapError(
            "stopped; start the same command again to go on from its last checkpoint (one is made every 20 seconds)."
        ) from None
    common.show(dataset, path, picture, time.perf_counter() - began, json)
