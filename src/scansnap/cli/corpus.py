"""`scansnap corpus`: `count`, `show`, `classes` and `predict`."""

from __future__ import annotations

import json as json_module
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scansnap.base import checks
from scansnap.base.options import from_names
from scansnap.base.printable import printable
from scansnap.base.progress import progress_bar
from scansnap.cli import common
from scansnap.cli.flags import Flag, read_flags, with_flags
from scansnap.cli.say import say
from scansnap.cli.text import MIN_COUNT_OPTION, TEXT_HELP, TOKENIZER_OPTION
from scansnap.text.counts.options import CountExecution, CountOptions
from scansnap.text.predictions.options import PredictOptions, QueriesKind

if TYPE_CHECKING:
    from scansnap.text.counts.evidence import ContextToken, Evidence


@with_flags(CountOptions, CountExecution, defaults=True)
def count(
    text: Annotated[str, typer.Argument(help=TEXT_HELP)],
    output: Annotated[Path, typer.Option("--output", help="The folder for the counts.")] = Path("counts"),
    add: Annotated[
        bool, typer.Option("--add", help="Add the text to the counts that are there, with their tokenizer.")
    ] = False,
    tokenizer: Annotated[str, TOKENIZER_OPTION] = "words",
    min_count: Annotated[int, MIN_COUNT_OPTION] = 1,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Count which tokens precede and follow every token of a text.

    The counts are exact for a text of any size, in Parquet tables that DuckDB and Polars open. Start the same command
    again after an interruption and it goes on. Look at a word with scansnap corpus show.
    """
    from scansnap.text.corpus.corpus import read_corpus
    from scansnap.text.counts.counting import count_corpus

    show = False if json else None
    began = time.perf_counter()
    # counts that are there have their vocabulary
    checks.path("--output", output)
    corpus = text if output.exists() else read_corpus(text, tokenizer=tokenizer, min_count=min_count, progress=show)
    counts = count_corpus(
        corpus, output=output, add=add, progress=show, **read_flags(flags, CountOptions, CountExecution)
    )
    seconds = time.perf_counter() - began
    if json:
        texts = [vars(text) for text in counts.texts]
        facts = {"counts": str(output), "tokens": counts.num_tokens, "vocab_size": counts.vocab_size, "texts": texts}
        say(json_module.dumps({**facts, "window": counts.window, "least": counts.least, "seconds": round(seconds, 3)}))
        return
    say(f"{counts.source}: {counts.num_tokens:,} tokens of {counts.vocab_size:,} types, each with the "
          f"{counts.window - 1} tokens before it and the next one")  # fmt: skip
    say(f"counts: {output}   ({seconds:.1f} s; look at a word with scansnap corpus show {output} --query WORD)")


def show(
    counts: Annotated[Path, typer.Argument(help="What `scansnap corpus count` wrote.")],
    query: Annotated[str, typer.Option("--query", help="The word to look at, one token of the text.")],
    top: Annotated[int, typer.Option("--top", help="How many tokens of each kind to show.")] = 10,
    least: Annotated[int, typer.Option("--least", help="How often a token must precede the word to be shown.")] = 10,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Show what precedes and follows a word: which tokens tell what comes next, and which are there anyway."""
    from scansnap.text.counts.counts import read_counts
    from scansnap.text.counts.evidence import evidence

    shown = evidence(read_counts(counts), query, top=top, least=least)
    if json:
        say(json_module.dumps(shown.plain(), allow_nan=False))
    else:
        _sentences(shown, least)


def classes(
    counts: Annotated[Path, typer.Argument(help="What `scansnap corpus count` wrote.")],
    queries: Annotated[str, typer.Option("--queries", help="How many words, or which.")] = "5",
    next_tokens: Annotated[int, typer.Option("--next-tokens", help="Most frequent next tokens of each query.")] = 5,
    tokens: Annotated[int, typer.Option("--tokens", help="Most frequent tokens before these.")] = 50,
    output: Annotated[Path, typer.Option("--output", help="The file for the classes (.toml or .json).")] = Path(
        "classes.json"
    ),
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Write the most frequent pairs of a word and the next one as sequence classes, which train and flow take."""
    from scansnap.data.classes_file import write_classes
    from scansnap.text.counts.classes import classes_from_counts
    from scansnap.text.counts.counts import read_counts

    wanted = QueriesKind().read("--queries", queries)
    made = classes_from_counts(read_counts(counts), queries=wanted, next_tokens=next_tokens, tokens=tokens)
    path = write_classes(made, output)
    if json:
        facts = {"classes": str(path), "num_classes": made.num_classes, "vocab_size": made.vocab_size}
        say(json_module.dumps({**facts, "kept": vars(made.kept)}))
        return
    sizes = f"{made.num_classes} classes of {len(made.queries)} queries and {len(made.contextual_tokens)} tokens"
    say(f"{sizes}: {made.kept}")
    say(f"classes: {path}   (run them with scansnap flow --classes {path} --lr-y 1 --lr-z 0.1)")


@with_flags(PredictOptions, defaults=True)
def predict(
    text: Annotated[str, typer.Argument(help=f"{TEXT_HELP} Or what `scansnap corpus count` wrote.")],
    top: Annotated[int, typer.Option("--top", help="How many tokens of each query to show.")] = 10,
    tokenizer: Annotated[str, TOKENIZER_OPTION] = "words",
    min_count: Annotated[int, MIN_COUNT_OPTION] = 1,
    store: Annotated[Path | None, typer.Option("--store", help="Where to write all numbers (zarr).")] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Predict, before any training, which tokens will win the attention of each query."""
    options = from_names(PredictOptions, read_flags(flags, PredictOptions))

    from scansnap.text.corpus.corpus import read_corpus
    from scansnap.text.counts.counts import INFO, read_counts
    from scansnap.text.predictions.predict import predict as predict_gains

    show = False if json else None
    is_counts = (Path(text) / INFO).exists()
    source = read_counts(text) if is_counts else read_corpus(
        text, tokenizer=tokenizer, min_count=min_count, progress=show
    )  # fmt: skip
    with progress_bar("predicting", None, show):
        prediction = predict_gains(source, options, store=store, progress=False)
    winners = {
        str(query.values): [word for word in row.values.tolist() if word][:top]
        for query, row in zip(prediction["query_word"], prediction["ranked_word"], strict=True)
    }
    if json:
        say(json_module.dumps({"method": options.described()["method"], "winners": winners}, ensure_ascii=False))
        return
    width = max(len(word) for word in winners)
    for word, words in winners.items():
        say(f"{word:>{width}}  {'  '.join(words)}")
    if store is not None:
        say(f"result: {store}   (open it with scansnap.load('{store}'))")


def _sentences(shown: Evidence, least: int) -> None:
    say(f"'{shown.query}' occurs {shown.occurrences:,} times before another token, in {shown.num_tokens:,} tokens")
    say("\nWhat follows it:")
    words = [printable(following.word, 40) for following in shown.following]
    width = max(map(len, words))
    for word, following in zip(words, shown.following, strict=True):
        say(f"  {word:{width}}  {following.count:9,} times  {following.share:6.1%}")
    say(f"\nWhat is among the {shown.window - 1} tokens before it at least {least} times:")
    _table("  distinct tokens, which tell what follows", shown.distinct)
    _table("  common tokens, which are there whatever follows", shown.common)


def _table(title: str, tokens: list[ContextToken]) -> None:
    if not tokens:
        say(f"\n{title}: none")
        return
    say(f"\n{title}:")
    words = [printable(token.word, 40) for token in tokens]
    width = max(map(len, words))
    for word, token in zip(words, tokens, strict=True):
        say(
            f"    {word:{width}}  {token.count:9,} times; then comes '{printable(token.next_word, 40)}' "
            f"{token.next_count:,} times, {token.next_share:.0%} (usually {token.usual_share:.1%}); "
            f"distinctness {token.distinctness:.2f} ({token.by_chance:.2f} by chance)"
        )
