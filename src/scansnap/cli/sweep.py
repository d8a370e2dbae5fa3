"""`scansnap sweep`."""

from __future__ import annotations

import json as json_module
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from scansnap.base.errors import InputError
from scansnap.cli import common
from scansnap.data.named_classes import NAMED, named_classes
from scansnap.dynamics.options import OPTIMIZERS, RECORDABLE

SHOWN = 20
"""Cells in the table; all of them with --json and in the result."""


def command(
    config: Annotated[
        Path | None, typer.Option("--config", help="A .toml file with the same words; options given here come first.")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option("--classes", help=f"Class settings, as a,b: {', '.join(NAMED)}, or .toml and .json files."),
    ] = None,
    lr_z: Annotated[
        str | None, typer.Option("--lr-z", help="Learning rates of the attention logits, as 0.5,1,2.")
    ] = None,
    lr_y: Annotated[str | None, typer.Option("--lr-y", help="Learning rates of the decoder, as 1,2,5.")] = None,
    lr_y_over_lr_z: Annotated[
        str | None, typer.Option("--lr-y-over-lr-z", help="Their ratios to lr_z, instead of --lr-y.")
    ] = None,
    seeds: Annotated[str | None, common.SEEDS_OPTION] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Updates.")] = None,
    batch_size: Annotated[
        str | None, typer.Option("--batch-size", help="Sequences per update, or none for the expected update.")
    ] = None,
    seq_len: Annotated[str | None, typer.Option("--seq-len", help="Sequence lengths T, as 128,inf.")] = None,
    optimizer: Annotated[
        str | None, typer.Option("--optimizer", help=f"Among {', '.join(OPTIMIZERS)}, as sgd,adam.")
    ] = None,
    momentum: Annotated[str | None, typer.Option("--momentum", help="Momentum of sgd, as 0,0.9.")] = None,
    init: Annotated[str | None, typer.Option("--init", help="Starts, as zeros,uniform.")] = None,
    decoder_gradient: Annotated[str | None, typer.Option("--decoder-gradient", help="As true,modified.")] = None,
    normalization: Annotated[str | None, typer.Option("--normalization", help="As l2,layer.")] = None,
    residual: Annotated[str | None, typer.Option("--residual", help="Without and with, as no,yes.")] = None,
    heads: Annotated[str | None, typer.Option("--heads", help="Numbers of heads, as 1,4.")] = None,
    layers: Annotated[str | None, typer.Option("--layers", help="Numbers of layers, as 1,2.")] = None,
    nonlinearity: Annotated[str | None, typer.Option("--nonlinearity", help="Between layers, as tanh,relu.")] = None,
    init_scale_z: Annotated[
        str | None, typer.Option("--init-scale-z", help="How many times as wide Z's uniform start is, as 1,10.")
    ] = None,
    attention_prior: Annotated[
        str | None,
        typer.Option("--attention-prior", help="Logits by token or kind, several with / between: none/common=-2."),
    ] = None,
    num_sequences: Annotated[
        str | None, typer.Option("--num-sequences", help="Sizes of a fixed training set, as 16,64,none.")
    ] = None,
    position_bias: Annotated[
        str | None,
        typer.Option(
            "--position-bias", help="By bucket as 0,-1,-2 or alibi=0.5; several with / between, as none/0,-1."
        ),
    ] = None,
    learn_position_bias: Annotated[
        str | None, typer.Option("--learn-position-bias", help="Fixed and learned, as no,yes.")
    ] = None,
    record_every: Annotated[int | None, typer.Option("--record-every", help="Updates between records.")] = None,
    record: Annotated[
        str | None,
        typer.Option("--record", help=f"What to keep: {', '.join(RECORDABLE)}; loss,accuracy,entropy unless told."),
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="float32 or float64.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu or cuda.")] = None,
    memory: Annotated[float | None, typer.Option("--memory", help="GiB that training may take at a time.")] = None,
    shard_size: Annotated[int | None, typer.Option("--shard-size", help="Runs trained together.")] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="ray for a cluster on this machine, or the address of one.")
    ] = None,
    retries: Annotated[int, typer.Option("--retries", help="How often a shard that fails is tried again.")] = 2,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Train every combination of rates, seeds, classes and options.

    The result is written shard by shard: start the same command again after an interruption and only what is missing
    is run. Lists are written as 1,2,5.
    """
    from scansnap.sweeps.config import read_sweep
    from scansnap.sweeps.sweep import runs_in_store, sweep

    options: dict[str, Any] = read_sweep(config) if config else {}
    given: dict[str, Any] = {
        "classes": _classes(classes),
        "lr_z": common.numbers("--lr-z", lr_z),
        "lr_y": common.numbers("--lr-y", lr_y),
        "lr_y_over_lr_z": common.numbers("--lr-y-over-lr-z", lr_y_over_lr_z),
        "seeds": common.integers("--seeds", seeds),
        "batch_size": _each(batch_size, lambda text: common.batch(text)[1]),
        "seq_len": _each(seq_len, common.length),
        "momentum": common.numbers("--momentum", momentum),
        "optimizer": _each(optimizer), "init": _each(init), "decoder_gradient": _each(decoder_gradient),
        "normalization": _each(normalization), "heads": _each(heads, partial(_number, name="--heads")),
        "layers": _each(layers, partial(_number, name="--layers")), "nonlinearity": _each(nonlinearity),
        "residual": _each(residual, partial(_yes, name="--residual")),
        "init_scale_z": common.numbers("--init-scale-z", init_scale_z), "attention_prior": _priors(attention_prior),
        "num_sequences": _each(num_sequences, _size), "position_bias": _priors(position_bias, common.bias),
        "learn_position_bias": _each(learn_position_bias, partial(_yes, name="--learn-position-bias")),
        "record": _each(record), "steps": steps, "record_every": record_every, "dtype": dtype, "device": device,
        "memory": memory, "shard_size": shard_size,
    }  # fmt: skip
    if given["lr_y"] is not None or given["lr_y_over_lr_z"] is not None:
        options.pop("lr_y", None), options.pop("lr_y_over_lr_z", None)
    options.update({name: value for name, value in given.items() if value is not None})
    missing = [name for name in ("classes", "lr_z", "steps") if name not in options]
    if missing:
        flags = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise InputError(f"{flags} must be given, here or in a --config file.")
    prints = {name: one.fingerprint for name, one in options["classes"].items()}
    path = store or common.default_store("sweep", prints, options)
    before = runs_in_store(path)
    began = time.perf_counter()
    found = sweep(**options, store=path, cluster=cluster, retries=retries, progress=False if json else None)
    _show(found, path, before, time.perf_counter() - began, json)


def _classes(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    return {Path(name).stem: named_classes(name.strip()) for name in text.split(",")}


def _each(text: str | None, read: Any = str.strip) -> list[Any] | None:
    return None if text is None else [read(part) for part in text.split(",")]


def _priors(text: str | None, read: Any = common.prior) -> list[Any] | None:
    """Priors with / between them; `none` for none."""
    if text is None:
        return None
    return [None if part.strip().lower() == "none" else read(part.strip()) for part in text.split("/")]


def _yes(text: str, name: str) -> bool:
    words = {"yes": True, "true": True, "no": False, "false": False}
    if text.strip().lower() not in words:
        raise InputError(f"{name} is '{text.strip()}': give yes, no, or both as no,yes.")
    return words[text.strip().lower()]


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{name} is '{text.strip()}': give whole numbers, as 1,4.") from None


def _size(text: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--num-sequences is '{text.strip()}': give whole numbers, or none for new data.") from None


def _show(found: Any, path: Path, before: int, seconds: float, as_json: bool) -> None:
    from scansnap.sweeps.cells import cells

    table = cells(found)
    if as_json:
        runs = {"runs": found.sizes["run"], "runs_found": before, "seconds": round(seconds, 3)}
        print(json_module.dumps({"result": str(path), **runs, "cells": table}))
        return
    measured = [name for name in ("loss", "fresh_loss", "entropy") if name in table[0]]
    keys = [name for name in table[0] if name not in ("runs", "ok") and name.removesuffix("_error") not in measured]
    print("  ".join(f"{name:>13}" for name in (*keys, "runs", *measured)))
    for cell in table[:SHOWN]:
        words = [f"{cell[key]:>13g}" if isinstance(cell[key], int | float) else f"{cell[key]:>13}" for key in keys]
        words.append(f"{cell['ok']:>13}" if cell["ok"] == cell["runs"] else f"{cell['ok']:>6} of {cell['runs']:>3}")
        for name in measured:
            error = f" ± {cell[f'{name}_error']:.2g}" if cell[f"{name}_error"] is not None else ""
            words.append(f"{'-' if cell[name] is None else format(cell[name], '.4g') + error:>13}")
        print("  ".join(words))
    if len(table) > SHOWN:
        print(f"... and {len(table) - SHOWN} more cells (mean over seeds ± standard error; all of them with --json)")
    if before:
        print(f"{before:,} of {found.sizes['run']:,} runs were there already")
    print(f"result: {path}   ({seconds:.1f} s; open it with scansnap.load('{path}') or xarray.open_zarr('{path}'))")
