"""`scansnap text`: `train`, `show` and `classes`."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Argument, Flag, command
from scansnap.cli.option_flags import option_flags, select_options
from scansnap.runtime.errors import InputError
from scansnap.text.classes import ClassOptions
from scansnap.text.corpus import ReadOptions
from scansnap.text.counts import ALL_SPLITS
from scansnap.text.options import AnyTextOptions, YZShape, YZTextOptions, text_options
from scansnap.validation.argument_types import IntegerType

if TYPE_CHECKING:
    import xarray as xr

    from scansnap.text.corpus import Corpus

TEXT_HELP = (
    "A file of text or a table (.txt, .csv, .tsv, .jsonl, .parquet, also .gz and .zst), a folder of them (with train, "
    "valid and test files, or any), or a name: example, wikitext-2, wikitext-103 (the last two are fetched)."
)
TEXT = Argument(TEXT_HELP, metavar="TEXT")


def read_text(source: str, *, quiet: bool, hold_out: bool = True, **options: Any) -> Corpus:
    """A text, and on the error stream which files were read and what is doubtful about them."""
    from scansnap.text.corpus import read_corpus

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are in the report
        corpus = read_corpus(source, **options, hold_out=hold_out, progress=False if quiet else None)
    for sentence in () if quiet else corpus.report:
        echo(f"{corpus.name}: {sentence}", error=True)
    return corpus


@command(
    common.OVERWRITE_FLAG, *option_flags(ReadOptions, AnyTextOptions, defaults=True, variants={"yz": YZTextOptions})
)
def train(
    source: Annotated[str, TEXT],
    store: Annotated[Path | None, common.STORE] = None,
    picture: Annotated[Path | None, common.PICTURE_BESIDE] = None,
    json: Annotated[bool, common.JSON] = False,
    **flags: Any,
) -> None:
    """Train a transformer, or the paper's Y and Z, on next-token prediction and follow its attention.

    By default a transformer is trained as in the paper's experiment on WikiText-2 (Figure 7). The result is written
    during training. If the command is interrupted, run it again: it resumes and gives the same numbers. The model is
    written beside the result, up to 1 GiB or with --save-model always. Under torchrun or accelerate launch, the
    processes share the batch of a transformer.
    """
    common.check_picture(picture)
    options = text_options(select_options(AnyTextOptions, flags))

    from scansnap.text.processes import process_count, process_rank
    from scansnap.text.train import train_text

    quiet = json or process_rank() > 0
    corpus = read_text(source, quiet=quiet, **select_options(ReadOptions, flags))
    if not json and process_rank() == 0:
        sizes = ", ".join(f"{len(ids):,} {split}" for split, ids in corpus.splits.items())
        echo(f"{corpus.name}: {sizes} tokens of {corpus.vocab_size:,} types", error=True)
        if isinstance(options, YZTextOptions):
            size = YZShape.of(options, vocab_size=corpus.vocab_size).parameter_bytes
            kept = "written beside the result" if options.saves_model(size) else "not written (--save-model always)"
            echo(f"the trained model takes {size / 2**30:.2g} GiB and is {kept}", error=True)
    configuration = {**options.to_dict(), "processes": process_count(), "corpus": corpus.fingerprint}
    path = common.choose_store(store, f"text-{corpus.name}", configuration, draws_beside=picture is None)
    began = time.perf_counter()
    dataset = train_text(corpus, **vars(options), store=path, progress=False if json else None)
    if process_rank() == 0:
        _show(dataset, path, picture, time.perf_counter() - began, json)


@command(common.OVERWRITE_FLAG)
def show(
    result: Annotated[Path, Argument("What `scansnap text train` wrote.")],
    text: Annotated[str | None, Flag("Words of your own to show the trained model's attention on.")] = None,
    steps: Annotated[
        str | None,
        Flag("Steps to show, such as 0,500,1500 (the nearest recorded ones); by default four, evenly spaced."),
    ] = None,
    layer: Annotated[int, Flag("Layer, from 0.")] = 0,
    head: Annotated[int, Flag("Head, from 0.")] = 0,
    window: Annotated[int | None, Flag("Validation window, from 0; by default the first.")] = None,
    picture: Annotated[Path | None, common.PICTURE_BESIDE] = None,
    json: Annotated[bool, common.JSON] = False,
) -> None:
    """Draw attention with the words on the axes: at several steps of training, or on words of your own."""
    common.check_picture(picture)

    from scansnap.figures import text_attention
    from scansnap.results.store import load
    from scansnap.storage.folder import CheckedFolder
    from scansnap.text.dataset import summarize_text

    at = None if steps is None else [IntegerType({}).read("--steps", part.strip()) for part in steps.split(",")]
    CheckedFolder(result).refuse_damage()
    dataset = load(result, partial=True)  # an unfinished run too
    if dataset.attrs.get("kind") != "text":
        raise InputError(f"{result} does not hold a result of text training: give what `scansnap text train` wrote.")
    if text is not None:
        for name, value in (("--steps", steps), ("--window", window)):
            if value is not None:
                raise InputError(f"both --text and {name} are given: your own words are shown at the last step.")
        shown = text_attention.prepare_own_text(result, text, layer=layer, head=head)
    else:
        shown = text_attention.prepare_words(dataset, steps=at, layer=layer, head=head, window=window or 0)
    target = picture or common.path_beside(result, "-words.png" if text is None else "-text.png")
    drawn = common.save_picture(text_attention.draw_words(shown), target)
    shown_steps = shown["step"].values.tolist()
    if json:
        common.echo_json({"picture": str(drawn), "shown_steps": shown_steps, **summarize_text(dataset)})
        return
    _sentences(dataset)
    words = shown["word"].values.tolist()
    if text is not None and (unknown := words.count("<unk>")):
        echo(f"{unknown} of {len(words)} words are unknown to the model and stand as <unk>")
    echo(f"picture: {drawn}   ({_of_steps(shown_steps, at)})")


@command(*option_flags(ReadOptions, ClassOptions, defaults=True))
def classes(
    source: Annotated[str, TEXT],
    output: Annotated[Path, Flag("The file for the classes (.toml or .json).")] = Path("classes.json"),
    json: Annotated[bool, common.JSON] = False,
    **flags: Any,
) -> None:
    """Write the most frequent pairs of a word and the next one as sequence classes, which train and flow take."""
    from scansnap.data.named_classes import write_classes
    from scansnap.text.classes import classes_from_text

    options = select_options(ClassOptions, flags)
    hold_out = options.get("split", ALL_SPLITS) != ALL_SPLITS
    corpus = read_text(source, quiet=json, hold_out=hold_out, **select_options(ReadOptions, flags))
    classes = classes_from_text(corpus, **options)
    path = write_classes(classes, output)
    if json:
        facts = {"classes": str(path), "num_classes": classes.num_classes, "vocab_size": classes.vocab_size}
        common.echo_json({**facts, "kept": vars(classes.kept)})
        return
    sizes = (
        f"{classes.num_classes} classes of {len(classes.queries)} queries and {len(classes.contextual_tokens)} tokens"
    )
    echo(f"{sizes}: {classes.kept}")
    echo(f"classes: {path}   (run them with scansnap flow --classes {path} --lr-y 1 --lr-z 0.1)")


def _of_steps(shown: list[int], asked: list[int] | None) -> str:
    """Which steps are drawn, and why if others were asked for."""
    words = f"step{'s' * (len(shown) > 1)} {', '.join(f'{step:,}' for step in shown)}"
    is_asked = asked is None or set(asked) == set(shown)
    return words if is_asked else f"{words}: the nearest that were recorded"


def _show(dataset: xr.Dataset, path: Path, picture: Path | None, seconds: float, json: bool) -> None:
    from scansnap.figures import text_attention
    from scansnap.text.dataset import summarize_text

    drawn = None
    if dataset.sizes["step"] > 1:
        figure = text_attention.draw_curves(text_attention.prepare_curves(dataset))
        drawn = common.save_picture(figure, picture or common.path_beside(path, ".png"), path)
    if json:
        common.echo_json({**common.result_facts(path, drawn, seconds), **summarize_text(dataset)})
        return
    _sentences(dataset)
    if drawn:
        echo(f"picture: {drawn}")
    echo(
        f"result: {path}   ({seconds:.1f} s; show it with scansnap text show {path}, open it with "
        f"scansnap.load('{path}'))"
    )


def _sentences(dataset: xr.Dataset) -> None:
    from scansnap.text.dataset import summarize_text

    facts = summarize_text(dataset)
    status = facts["status"]
    if status == "diverged":
        can_clip = '"clip"' in dataset.attrs["options"]
        status += f" at step {facts['diverged_step']:,}: lower the learning rates{', or clip' * can_clip}"
    echo(
        f"{status}; step {facts['step']:,}: loss {_number(facts['loss'])}, validation loss "
        f"{_number(facts['valid_loss'])} (perplexity {_number(facts['valid_perplexity'], '.1f')})"
    )
    for head in facts["heads"][:12]:
        first, last = (_number(head[f"normalized_entropy_{end}"]) for end in ("first", "last"))
        name = f"layer {head['layer']}, head {head['head']}"
        echo(f"{name}: entropy of attention {first} → {last} of the largest possible; {head['snap']}")
    if len(facts["heads"]) > 12:
        echo(f"... and {len(facts['heads']) - 12} more heads")


def _number(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)
