"""`scansnap corpus`: `count`, `show`, `classes` and `predict`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Flag, read_flags, with_flags
from scansnap.cli.text import TEXT_ARGUMENT, TEXT_HELP, read_text
from scansnap.corpus.options import ALL, CountExecution, CountOptions, ReadOptions
from scansnap.corpus.predictors import PredictOptions, QueriesType
from scansnap.runtime.errors import InputError, count_items, printable
from scansnap.runtime.progress import progress_bar
from scansnap.validation import checks
from scansnap.validation.options import from_names

if TYPE_CHECKING:
    import xarray as xr

    from scansnap.corpus.evidence import ContextToken, Evidence

NUMBERS = ("gain", "control", "count")
"""What is told of a token that is predicted to win."""

POPULATION = "population"
"""The method that follows the training itself, at its rates."""

SMALL_TEXT = 30_000
"""Tokens of a text below which POPULATION says more than the others (docs/prediction.md)."""


@with_flags(ReadOptions, CountOptions, CountExecution, defaults=True)
def count(
    source: Annotated[str, TEXT_ARGUMENT],
    output: Annotated[Path, typer.Option(help="The folder for the counts.")] = Path("counts"),
    add: Annotated[
        bool, typer.Option("--add", help="Add the text to the counts that are there, with their tokenizer.")
    ] = False,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Count which tokens precede and follow every token of a text.

    The counts are exact for a text of any size, in Parquet tables that DuckDB and Polars open. Start the same command
    again after an interruption and it resumes. Show a word with scansnap corpus show.
    """
    from scansnap.corpus.counting import count_corpus, stored_tokenizer

    began = time.perf_counter()
    checks.path("--output", output)
    options = read_flags(flags, CountOptions, CountExecution)
    stored = stored_tokenizer(output) if add else None
    reading = read_flags(flags, ReadOptions)
    if stored is not None and reading.get("tokenizer", stored.name) == stored.name:
        reading = {**reading, "tokenizer": stored, "min_count": 1}
    corpus = read_text(source, quiet=json, hold_out=options.get("split", ALL) != ALL, **reading)
    counts = count_corpus(corpus, output=output, add=add, progress=False if json else None, **options)
    seconds = time.perf_counter() - began
    if json:
        texts = [vars(text) for text in counts.texts]
        facts = {"counts": str(output), "tokens": counts.num_tokens, "vocab_size": counts.vocab_size, "texts": texts}
        facts |= {"window": counts.window, "least": counts.least, "report": corpus.report}
        common.echo_json({**facts, "seconds": round(seconds, 3)})
        return
    echo(
        f"{counts.source}: {counts.num_tokens:,} tokens of {counts.vocab_size:,} types, each with the "
        f"{counts.window - 1} tokens before it and the next one"
    )
    if stored is not None and (unknown := corpus.count_unknown()):
        echo(f"{unknown:,} tokens of {corpus.name} are not in the vocabulary of the counts and count as <unk>")
    if left := sorted(set(corpus.splits) - {text.split for text in counts.texts}):
        tokens = sum(len(corpus.splits[split]) for split in left)
        echo(f"{tokens:,} tokens are held out ({', '.join(left)}) and not counted; --split all counts them")
    echo(f"counts: {output}   ({seconds:.1f} s; look at a word with scansnap corpus show {output} --query WORD)")


def show(
    counts: Annotated[Path, typer.Argument(help="What `scansnap corpus count` wrote.")],
    query: Annotated[str | None, typer.Option(help="The word to show, one token of the text.")] = None,
    top: Annotated[int, typer.Option(help="How many tokens of each kind to show.")] = 10,
    least: Annotated[
        int | None,
        typer.Option(
            help="How often a token must precede the word to be shown; by default a fiftieth of the word's "
            "occurrences, and at least 10."
        ),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Show what precedes and follows a word: which tokens tell what comes next, and which are there anyway."""
    from scansnap.corpus.counts import read_counts
    from scansnap.corpus.evidence import evidence

    counted = read_counts(counts)
    if query is None:
        words = ", ".join(printable(word, 40) for word in counted.tokenizer.words(counted.frequent_words(5)))
        raise InputError(f"--query is missing: give a word of the text, such as {words}.")
    shown = evidence(counted, query, top=top, least=least)
    if json:
        common.echo_json(asdict(shown))
    else:
        _sentences(shown)


def classes(
    counts: Annotated[Path, typer.Argument(help="What `scansnap corpus count` wrote.")],
    queries: Annotated[str, typer.Option(help="How many words, or which.")] = "5",
    next_tokens: Annotated[int, typer.Option(help="Most frequent next tokens of each query.")] = 5,
    tokens: Annotated[int, typer.Option(help="Most frequent tokens before these.")] = 50,
    output: Annotated[Path, typer.Option(help="The file for the classes (.toml or .json).")] = Path("classes.json"),
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Write the most frequent pairs of a word and the next one as sequence classes, which train and flow take."""
    from scansnap.corpus.classes import classes_from_counts
    from scansnap.corpus.counts import read_counts
    from scansnap.data.named_classes import write_classes

    wanted = QueriesType().read("--queries", queries)
    classes = classes_from_counts(read_counts(counts), queries=wanted, next_tokens=next_tokens, tokens=tokens)
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


@with_flags(ReadOptions, PredictOptions, defaults=True)
def predict(
    source: Annotated[str, typer.Argument(metavar="TEXT", help=f"{TEXT_HELP} Or what `scansnap corpus count` wrote.")],
    top: Annotated[int, typer.Option(help="How many tokens of each query to show.")] = 10,
    store: Annotated[Path | None, typer.Option(help="Where to write all numbers (zarr).")] = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="A run of `text train --model yz` on the same text, to score the prediction on."),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Predict, before any training, which tokens will win the attention of each query in the paper's (Y, Z) model.

    The prediction does not carry over to ordinary transformers.
    """
    options = from_names(PredictOptions, read_flags(flags, PredictOptions))

    from scansnap.corpus.counts import Counts, read_counts
    from scansnap.corpus.predictions import predict as predict_gains
    from scansnap.results.store import load
    from scansnap.storage.folder import MANIFEST

    run = None if compare is None else load(compare)
    is_counts = (Path(source) / MANIFEST).exists()
    text = read_counts(source) if is_counts else read_text(source, quiet=json, **read_flags(flags, ReadOptions))
    with progress_bar("predicting", None, False if json else None):
        prediction = predict_gains(text, **vars(options), store=store, progress=False)
    scores = None if run is None else _compared(prediction, run, str(compare))
    winners = {
        str(word): _winners(prediction.isel(query=i), top) for i, word in enumerate(prediction["query_word"].values)
    }
    num_tokens = text.num_tokens if isinstance(text, Counts) else len(text.train)
    if json:
        plan = vars(options.plan(num_tokens))
        facts = {"model": "yz", "method": options.to_dict()["method"], **plan, "winners": winners}
        common.echo_json({**facts, **({} if scores is None else {"compared": scores})})
        return
    _predicted(winners, options, num_tokens)
    if scores is not None:
        echo(
            f"\nCompared with {compare}, means over queries:\n  {'':12}  {'ten winners':>11}  {'rank correlation':>16}"
        )
        for name, score in scores.items():
            echo(f"  {name:12}  {score['winners']:11.2f}  {score['rank']:16.2f}")
    if store is not None:
        echo(f"result: {store}   (open it with scansnap.load('{store}'))")


def _winners(of_query: xr.Dataset, top: int) -> list[dict[str, Any]]:
    """The first tokens of a query, with their numbers."""
    tokens = [token for token in of_query["ranked"].values.tolist() if token >= 0][:top]
    numbers = {name: of_query[name].sel(token=tokens).values.tolist() for name in NUMBERS if name in of_query}
    words = of_query["token_word"].sel(token=tokens).values.tolist()
    return [
        {"token": word, **dict(zip(numbers, row, strict=True))}
        for word, row in zip(words, zip(*numbers.values(), strict=True), strict=True)
    ]


def _predicted(winners: dict[str, list[dict[str, Any]]], options: PredictOptions, num_tokens: int) -> None:
    """A table of tokens by query."""
    plan = options.plan(num_tokens)
    is_dynamic = options.method == POPULATION
    rates = f"after {plan.steps:,} updates at the rates η_Y = {plan.lr_y:g} and η_Z = {plan.lr_z:g}"
    echo(
        f"Tokens predicted to gain most attention in the (Y, Z) model, "
        f"{rates if is_dynamic else 'while attention is still even'}.\n"
        "The prediction does not carry over to ordinary transformers."
    )
    if num_tokens < SMALL_TEXT and not is_dynamic:
        echo(f"In a text of fewer than {SMALL_TEXT:,} tokens --method {POPULATION} says more.")
    unit = "attention logit" if is_dynamic else "drive of the attention logit, at rates of 1"
    shuffled = "; shuffled: the same with next tokens shuffled" if options.control else ""
    echo(f"Gain: {unit} (below 0, it falls){shuffled}; count: how often it precedes the query in a window.")
    width = max(len(printable(word, 40)) for word in (*winners, "query"))
    token_width = max([5, *(len(printable(row["token"], 40)) for rows in winners.values() for row in rows)])
    shuffled = f"  {'shuffled':>9}" if options.control else ""
    echo(f"\n{'query':{width}}  {'token':{token_width}}  {'gain':>9}{shuffled}  {'count':>9}")
    for query, rows in winners.items():
        for place, row in enumerate(rows):
            shuffled = f"  {row['control']:9.2g}" if options.control else ""
            echo(
                f"{printable(query, 40) if place == 0 else '':{width}}  {printable(row['token'], 40):{token_width}}  "
                f"{row['gain']:9.2g}{shuffled}  {row['count']:9,}"
            )


def _compared(prediction: xr.Dataset, run: xr.Dataset, name: str) -> dict[str, dict[str, float]]:
    """How well the prediction and what it must beat say the attention logits of a run of (Y, Z) on the same text."""
    from scansnap.corpus.predictions import TOP, score_prediction

    if "attention_logits" not in run or not _vocabulary(prediction) <= _vocabulary(run):
        raise InputError(
            f"--compare is '{name}', which holds no run of Y and Z on this text: give the --store of "
            "`scansnap text train TEXT --model yz`."
        )
    shared = prediction.isel(query=prediction["query"].isin(run["query"]).values)
    if not shared.sizes["query"]:
        raise InputError(f"--compare is '{name}', which recorded none of these queries: give others (--queries).")
    if not (shared["gain"].notnull().sum("token") > TOP).any():
        raise InputError(f"no query has more than {TOP} tokens that are ranked: give more text, or a smaller --least.")
    gains = run["attention_logits"].isel(run=0, layer=0, head=0).sel(query=shared["query"], token=shared["token"])
    means = score_prediction(shared, gains.values)[["winners", "rank"]].mean(("run", "query"))
    return {
        str(name): {score: float(means[score].sel(explanation=name)) for score in ("winners", "rank")}
        for name in means["explanation"].values
    }


def _vocabulary(dataset: xr.Dataset) -> set[tuple[int, str]]:
    return set(zip(dataset["token"].values.tolist(), dataset["token_word"].values.tolist(), strict=True))


def _sentences(shown: Evidence) -> None:
    times = count_items(shown.occurrences, "time")
    echo(f"'{shown.query}' occurs {times} before another token, in {shown.num_tokens:,} tokens")
    echo("\nWhat follows it:")
    words = [printable(following.word, 40) for following in shown.following]
    width = max(map(len, words))
    for word, following in zip(words, shown.following, strict=True):
        echo(f"  {word:{width}}  {count_items(following.count, 'time'):>15}  {following.share:6.1%}")
    echo(
        f"\nWhat is among the {shown.window - 1} tokens before it at least {count_items(shown.least, 'time')}, counted "
        "once for each window that it is in:"
    )
    _table("  distinct tokens, which tell what follows", shown.distinct)
    _table("  common tokens, which are there whatever follows", shown.common)


def _table(title: str, tokens: list[ContextToken]) -> None:
    echo(f"\n{title}:{'' if tokens else ' none'}")
    words = [printable(token.word, 40) for token in tokens]
    width = max(map(len, words), default=0)
    for word, token in zip(words, tokens, strict=True):
        echo(
            f"    {word:{width}}  {count_items(token.count, 'time'):>15} (from "
            f"{count_items(token.occurrences, 'occurrence')}); then comes '{printable(token.next_word, 40)}' "
            f"{count_items(token.next_count, 'time')}, {token.next_share:.0%} (usually {token.usual_share:.1%}); "
            f"distinctness {token.distinctness:.2f} ({token.by_chance:.2f} by chance)"
        )
