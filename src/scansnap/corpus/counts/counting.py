"""Counting a text into a store, and adding further texts to it.

While the work lasts, it is in a folder beside the store, `counts.partial`, which begins with its plan.  The store
itself is always complete: the result takes its place in the end.  The same command, started again, finishes the work.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.corpus import Corpus, read_corpus
from scansnap.corpus.counts.counts import FORMAT, INFO, KIND, MARGINS, TOKENIZER, VOCABULARY, Counts, read_counts
from scansnap.corpus.counts.disk import check_disk
from scansnap.corpus.counts.options import ALL, CountExecution, CountOptions
from scansnap.corpus.counts.pieces import count_piece, merge_piece, runner
from scansnap.corpus.counts.plan import Plan, Text, cut_queries, cut_texts, describe, margins, take
from scansnap.corpus.counts.tables import COLUMNS, is_written, remove_drafts, write_columns
from scansnap.corpus.tokenizers import WORDS
from scansnap.results.provenance import provenance
from scansnap.runtime.errors import InputError, StoreError
from scansnap.runtime.progress import progress_bar
from scansnap.storage.files import DamagedFile, list_files, replace_file, sealed, sync
from scansnap.storage.lock import WriterLock
from scansnap.validation.options import called_as, from_names, options_of
from scansnap.validation.validate import validated

PLAN, COUNTED, RESULT, REPLACED = "plan.json", "counted", "result", "replaced"


@dataclass(frozen=True, kw_only=True)
class CountCall(CountOptions, CountExecution):
    """A call of `count_corpus`, for its signature."""

    output: str | Path = "counts"
    add: bool = False
    progress: bool | None = None


@called_as(CountCall, CountOptions, CountExecution)
@validated
def count_corpus(
    corpus: Corpus | str | Path,
    /,
    *,
    output: str | Path = "counts",
    add: bool = False,
    progress: bool | None = None,
    **words: Any,
) -> Counts:
    """Count which tokens precede and follow every token of a text, and keep the counts as Parquet tables.

    If the work is interrupted, the same call finishes it; if it is done already, the counts are read.

    Parameters
    ----------
    corpus : Corpus, or str or path
        What `read_corpus` returns or takes.  A text that is added is read with the tokenizer of the counts.
    {options}
    output : path
        The folder of the counts.
    add : bool
        Add the text to the counts in `output`.  A text that was counted before is not counted again.
    progress : bool, optional
        Show a progress bar, or nothing if false; by default a bar on a terminal, and elsewhere a line now and then.

    Returns
    -------
    Counts
        As `read_counts(output)`.

    Examples
    --------
    >>> counts = ss.count_corpus("example", output="counted")
    >>> counts.num_tokens, counts.window
    (29323, 35)
    """
    how = CountExecution(**{name: words.pop(name) for name in options_of(CountExecution) if name in words})
    options = from_names(CountOptions, words)
    output = Path(output)
    with _locked(output):
        work = _Work(output)
        base = read_counts(output) if output.exists() else None
        if not isinstance(corpus, Corpus):
            corpus = read_corpus(corpus, tokenizer=WORDS if base is None else base.tokenizer, progress=progress)
        plan, sums = _plan(corpus, options, how, output, base, add)
        if plan.texts:
            if not work.folder.exists():
                check_disk(plan, corpus, output)
            work.begin(plan)
            try:
                work.count(corpus, how, progress)
            except KeyboardInterrupt as stop:
                stop.add_note(work.standing())
                raise
            work.finish(corpus, sums)
    return read_counts(output)


def _splits(corpus: Corpus, options: CountOptions) -> list[str]:
    names: list[str] = list(corpus.splits) if options.split == ALL else [options.split]
    for name in names:
        if name not in corpus.splits:
            raise InputError(
                f"{corpus.name} has no split '{name}': choose one of {', '.join(corpus.splits)}, or '{ALL}'."
            )
        if len(corpus.splits[name]) < 2:
            raise InputError(f"the {name} split of {corpus.name} has a single token: give text with at least two.")
    return names


def _plan(
    corpus: Corpus, options: CountOptions, how: CountExecution, output: Path, base: Counts | None, add: bool
) -> tuple[Plan, NDArray[np.int64]]:
    """What must be done (without new texts, nothing), and the margins after it."""
    counted = () if base is None else base.texts
    texts: list[Text] = []
    sums = np.zeros((len(MARGINS), corpus.vocab_size), np.int64)
    for split in _splits(corpus, options):
        ids = corpus.splits[split]
        digest, frequency = describe(ids, corpus.vocab_size)
        if digest not in {text.digest for text in (*counted, *texts)}:
            texts.append(Text(corpus.name, split, len(ids), digest))
            sums += margins(ids, frequency, options.window)
    if base is not None:
        _check_base(output, base, corpus, options, adding=bool(texts), allowed=add)
        sums += np.stack([base.vocabulary[name].values for name in MARGINS])
    cuts = base.cuts if base is not None else cut_queries(sums[0], options.window)
    chunks = cut_texts([text.tokens for text in texts], how.memory * 2**30, options.window)
    fingerprint = corpus.tokenizer.fingerprint
    plan = Plan(options.window, options.least, corpus.vocab_size, fingerprint, tuple(texts), counted, cuts, chunks)
    return plan, sums


def _check_base(
    output: Path, base: Counts, corpus: Corpus, options: CountOptions, *, adding: bool, allowed: bool
) -> None:
    for name, old, new in (("window", base.window, options.window), ("least", base.least, options.least)):
        if old != new:
            raise StoreError(f"{output} was counted with {name} = {old}, not {new}: give that, or another output.")
    if base.tokenizer.fingerprint != corpus.tokenizer.fingerprint:
        raise StoreError(
            f"{output} was counted with another vocabulary: read the text with read_corpus(..., tokenizer="
            f"read_counts('{output}').tokenizer), or give another output."
        )
    if adding and not allowed:
        raise StoreError(
            f"{output} holds the counts of other text ({base.source}): say add (--add) to add this text to it, or give "
            "another output."
        )
    if adding and base.least > 1:
        raise StoreError(
            f"{output} has no counts below {base.least}, so nothing can be added exactly: count all texts together, or "
            "with least 1."
        )


@contextmanager
def _locked(output: Path) -> Iterator[None]:
    lock = WriterLock(output)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


class _Work:
    """Work in progress, in the folder beside the output."""

    def __init__(self, output: Path) -> None:
        self.output = output.absolute()  # workers have other working folders
        self.folder = self.output.with_name(f"{output.name}.partial")
        if (self.folder / REPLACED).exists():  # stopped within the last moves of `finish`
            if not output.exists():
                (self.folder / RESULT).rename(output)
            self.clear()

    def begin(self, plan: Plan) -> None:
        """Take up the plan in the folder, or begin this one there."""
        file = self.folder / PLAN
        self.plan = plan
        if file.exists():
            try:
                old = Plan.from_json(file.read_bytes())
            except DamagedFile:
                raise StoreError(f"{file} is damaged: remove {self.folder} and start the same command again.") from None
            if old.same_work(plan):
                self.plan = old
                return
            if not set(old.texts) <= set(plan.counted):  # which only a folder that was not yet removed has
                names = ", ".join(text.name for text in old.texts)
                raise StoreError(
                    f"{self.folder} holds unfinished counts of {names}, with other text or options: finish them by the "
                    "same command, or remove that folder."
                )
        with self._writing():
            self.clear()
            self.folder.mkdir(parents=True)
            replace_file(file, plan.to_json())

    @property
    def _runs(self) -> list[Path]:
        """The folder of each chunk's tables; those of the only chunk are the result."""
        if len(self.plan.chunks) == 1 and not self.plan.counted:
            return [self.folder / RESULT]
        return [self.folder / "runs" / f"{i:05d}" for i in range(len(self.plan.chunks))]

    def count(self, corpus: Corpus, how: CountExecution, progress: bool | None) -> None:
        """Do every piece that is missing."""
        plan, parts = self.plan, range(self.plan.num_parts)
        merges = self._runs != [self.folder / RESULT]
        total = len(parts) * (len(plan.chunks) + merges)
        name = f"counting {', '.join(text.name for text in plan.texts)}"
        with progress_bar(name, total, progress) as show, runner(how, plan.vocab_size) as (run, block):
            done = 0
            for chunk, folder in zip(plan.chunks, self._runs, strict=True):
                missing = [] if (self.folder / COUNTED).exists() else [p for p in parts if not is_written(folder, p)]
                done += len(parts) - len(missing)
                show(done)
                if not missing:
                    continue
                ids = corpus.splits[plan.texts[chunk.text].split]
                before = min(chunk.first, plan.window - 1)
                piece = take(ids, chunk.first - before, chunk.stop + 1)
                least = 1 if merges else plan.least
                for _ in run(count_piece, missing, piece, before, plan, least, folder, block):
                    done += 1
                    show(done)
            with self._writing():
                replace_file(self.folder / COUNTED, b"")
            if merges:
                base = self.output if plan.counted else None
                for _ in run(merge_piece, parts, self._runs, base, self.folder, self.folder / RESULT, plan, block):
                    done += 1
                    show(done)

    def standing(self) -> str:
        """What interrupted work leaves, in a sentence."""
        parts = sum(is_written(folder, part) for folder in self._runs for part in range(self.plan.num_parts))
        all_parts = self.plan.num_parts * len(self.plan.chunks)
        words = "all parts, not yet added up" if (self.folder / COUNTED).exists() else f"{parts} of {all_parts} parts"
        return f"{self.folder} holds {words}: start the same again to go on from there."

    def finish(self, corpus: Corpus, sums: NDArray[np.int64]) -> None:
        """Complete the result, with the margins of all texts, and let it take its place."""
        plan, result = self.plan, self.folder / RESULT
        tokens = np.arange(plan.vocab_size, dtype=np.int32)
        texts = [{**vars(text)} for text in (*plan.counted, *plan.texts)]
        description = {
            "kind": KIND,
            "format": FORMAT,
            "window": plan.window,
            "least": plan.least,
            "vocab_size": plan.vocab_size,
            "texts": texts,
            "tokenizer": corpus.tokenizer.name,
            "cuts": plan.cuts,
            "origin": provenance(),
        }
        with self._writing():
            remove_drafts(result)
            write_columns(
                result / VOCABULARY,
                {"token": tokens, "word": corpus.words(tokens), **dict(zip(MARGINS, sums, strict=True))},
            )
            corpus.tokenizer.save(result / TOKENIZER)
            files = list_files(result, leave_out={*COLUMNS, INFO})
            sync([result, result / TOKENIZER, *(result / name for name in files)])
            replace_file(result / INFO, sealed({**description, "files": files}))
            if self.output.exists():
                self.output.rename(self.folder / REPLACED)
            else:
                (self.folder / REPLACED).mkdir()
            result.rename(self.output)
            sync([self.output.parent])
            self.clear()

    def clear(self) -> None:
        """Remove the folder: first the plan, without which what is left is nothing."""
        (self.folder / PLAN).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot write {self.folder} ({error.strerror or error}): what was counted is kept; fix the cause and "
                "start the same command again."
            ) from None
