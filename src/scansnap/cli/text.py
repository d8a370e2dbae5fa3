"""`scansnap text train` and `scansnap text show`."""

from __future__ import annotations

import json as json_module
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scansnap.base.errors import InputError, ScanSnapError
from scansnap.cli import common
from scansnap.figures.picture import save_picture

if TYPE_CHECKING:
    import xarray as xr

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

TEXT_HELP = (
    "A text file, a folder of text files (with train, valid and test files, or any), or a name: example, wikitext-2, "
    "wikitext-103 (the last two are fetched)."
)


@app.callback()
def _root() -> None:
    """Train transformers on text and follow their attention."""


@app.command("train")
def train(
    text: Annotated[str, typer.Argument(help=TEXT_HELP)],
    steps: Annotated[int | None, typer.Option("--steps", help="Updates; one pass over the text unless given.")] = None,
    lr_y: Annotated[float, typer.Option("--lr-y", help="Learning rate of all but what --lr-z is for.")] = 5.0,
    lr_z: Annotated[
        float | None, typer.Option("--lr-z", help="Learning rate of W_Q, W_K and a t5 bias; --lr-y unless given.")
    ] = None,
    layers: Annotated[int, typer.Option("--layers", help="Layers.")] = 1,
    heads: Annotated[int, typer.Option("--heads", help="Heads in each layer.")] = 1,
    width: Annotated[int, typer.Option("--width", help="Width d of the model.")] = 200,
    feed_forward: Annotated[int, typer.Option("--feed-forward", help="Width of the feed-forward part.")] = 200,
    norm: Annotated[str, typer.Option("--norm", help="LayerNorm after (post) or before (pre) each part.")] = "post",
    dropout: Annotated[float, typer.Option("--dropout", help="Share that is dropped.")] = 0.2,
    positions: Annotated[
        str, typer.Option("--positions", help="none, sinusoidal, alibi or t5 (a learned bias by distance).")
    ] = "sinusoidal",
    window: Annotated[int, typer.Option("--window", help="Tokens in a window.")] = 35,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Windows per update.")] = 20,
    optimizer: Annotated[str, typer.Option("--optimizer", help="sgd, adam or adamw.")] = "sgd",
    momentum: Annotated[float, typer.Option("--momentum", help="Momentum of sgd.")] = 0.0,
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="Weight decay.")] = 0.0,
    clip: Annotated[float, typer.Option("--clip", help="Largest norm of the gradient; 0 lets it be.")] = 0.5,
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", help="words (lower-cased), or a Hugging Face tokenizer: a file or a name.")
    ] = "words",
    min_count: Annotated[int, typer.Option("--min-count", help="Rarer words become <unk>.")] = 1,
    precision: Annotated[str, typer.Option("--precision", help="float32, bf16-decoder (faster) or bf16.")] = "float32",
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")] = False,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option("--seed", help="Of the start and of dropout.")] = 0,
    record_every: Annotated[
        int | None,
        typer.Option(
            "--record-every",
            help="Updates between measurements of attention; 16 to 100 of them, in 3% of the time, unless given.",
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            "--evaluate-every",
            help="Updates between validation losses, which go with records; at the end only unless given.",
        ),
    ] = None,
    patterns: Annotated[int, typer.Option("--patterns", help="Validation windows whose attention is kept.")] = 4,
    store: Annotated[Path | None, common.STORE_OPTION] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Where to draw the run (.png, .pdf, .svg); beside the result unless given."),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Train a transformer on next-token prediction and follow its attention.

    Unless given, options have the values of the paper's experiment on WikiText-2 (Figure 7). The result is written as
    it goes: start the same command again after an interruption and it continues to the same numbers. The trained model
    is left beside it. Under torchrun or accelerate launch the batch is shared by the processes.
    """
    common.check_picture(picture)

    from scansnap.text.corpus.corpus import read_corpus
    from scansnap.text.training.ranks import processes, this_rank
    from scansnap.text.training.train import train_text

    corpus = read_corpus(text, tokenizer=tokenizer, min_count=min_count, progress=False if json else None)
    options: dict[str, Any] = {
        "steps": steps, "lr_y": lr_y, "lr_z": lr_z, "layers": layers, "heads": heads, "width": width,
        "feed_forward": feed_forward, "norm": norm, "dropout": dropout, "positions": positions, "window": window,
        "batch_size": batch_size, "optimizer": optimizer, "momentum": momentum, "weight_decay": weight_decay,
        "clip": clip or None, "precision": precision, "compile": compile, "device": device, "seed": seed,
        "record_every": record_every, "evaluate_every": evaluate_every, "patterns": patterns,
    }  # fmt: skip
    if not json and this_rank() == 0:
        sizes = ", ".join(f"{len(ids):,} {split}" for split, ids in corpus.splits.items())
        print(f"{corpus.name}: {sizes} tokens of {corpus.vocab_size:,} types", file=sys.stderr)
    named = {**options, "processes": processes()}
    path = store or common.default_store(f"text-{corpus.name}", corpus.fingerprint, named)
    began = time.perf_counter()
    try:
        dataset = train_text(corpus, **options, store=path, progress=False if json else None)
    except KeyboardInterrupt:
        raise ScanSnapError(
            "stopped; start the same command again to go on from its last checkpoint (one is made every minute)."
        ) from None
    if this_rank() == 0:
        _show(dataset, path, picture, time.perf_counter() - began, json)


@app.command("show")
def show(
    result: Annotated[Path, typer.Argument(help="What `scansnap text train` wrote.")],
    text: Annotated[
        str | None,
        typer.Option("--text", help="Words of your own to show the trained model's attention on.", show_default=False),
    ] = None,
    steps: Annotated[
        str | None, typer.Option("--steps", help="Steps to show, as 0,500,1500; four evenly spaced unless given.")
    ] = None,
    layer: Annotated[int, typer.Option("--layer", help="Layer, from 0.")] = 0,
    head: Annotated[int, typer.Option("--head", help="Head, from 0.")] = 0,
    window: Annotated[
        int | None, typer.Option("--window", help="Validation window, from 0; the first unless given.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Where to draw it (.png, .pdf, .svg); beside the result unless given."),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Draw attention with the words on the axes: at several steps of training, or on words of your own."""
    common.check_picture(picture)

    from scansnap.figures import word_attention
    from scansnap.results.store import load

    dataset = load(result, partial=True)
    if dataset.attrs.get("kind") != "text":
        raise InputError(f"{result} is no result of text training: give what `scansnap text train` wrote.")
    if text is not None:
        for name, given in (("--steps", steps), ("--window", window)):
            if given is not None:
                raise InputError(f"both --text and {name} are given: your own words are shown at the last step.")
        shown = word_attention.of_text(result, text, layer=layer, head=head)
    else:
        at = None if steps is None else common.integers("--steps", steps)
        shown = word_attention.prepare(dataset, steps=at, layer=layer, head=head, window=window or 0)
    target = picture or common.beside(result, "-words.png" if text is None else "-text.png")
    drawn = save_picture(word_attention.draw(shown), target)
    if json:
        print(json_module.dumps({"picture": str(drawn), **_facts(dataset)}, allow_nan=False))
        return
    _sentences(dataset)
    words = shown["word"].values.tolist()
    if text is not None and (unknown := words.count("<unk>")):
        print(f"{unknown} of {len(words)} words are unknown to the model and stand as <unk>")
    print(f"picture: {drawn}")


def _show(dataset: xr.Dataset, path: Path, picture: Path | None, seconds: float, json: bool) -> None:
    from scansnap.figures import text_over_time

    drawn = None
    if dataset.sizes["step"] > 1:
        figure = text_over_time.draw(text_over_time.prepare(dataset))
        drawn = save_picture(figure, picture or common.beside(path, ".png"), f"; the result is at {path}")
    if json:
        facts = {"result": str(path), "picture": str(drawn) if drawn else None, "seconds": round(seconds, 3)}
        facts.update(_facts(dataset))
        print(json_module.dumps(facts, allow_nan=False))
        return
    _sentences(dataset)
    if drawn:
        print(f"picture: {drawn}")
    print(f"result: {path}   ({seconds:.1f} s; show it with scansnap text show {path}, open it with "
          f"scansnap.load('{path}'))")  # fmt: skip


def _facts(dataset: xr.Dataset) -> dict[str, Any]:
    from scansnap.text.training.summary import summarize_text

    return summarize_text(dataset)


def _sentences(dataset: xr.Dataset) -> None:
    facts = _facts(dataset)
    status = facts["status"]
    if status == "diverged":
        status += f" at step {facts['diverged_step']:,}: lower the learning rates, or clip"
    print(f"{status}; step {facts['step']:,}: loss {_number(facts['loss'])}, validation loss "
          f"{_number(facts['valid_loss'])} (perplexity {_number(facts['valid_perplexity'], '.1f')})")  # fmt: skip
    for one in facts["heads"][:12]:
        first, last = (_number(one[f"normalized_entropy_{end}"]) for end in ("first", "last"))
        name = f"layer {one['layer']}, head {one['head']}"
        print(f"{name}: entropy of attention {first} → {last} of the largest possible; {one['snap']}")
    if len(facts["heads"]) > 12:
        print(f"... and {len(facts['heads']) - 12} more heads")


def _number(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)
