"""Counting a text into a store, and adding further texts to it.

A store is a `CheckedFolder`.  While the work lasts, it also holds the job and the tables of the pieces that are done,
each committed when it is complete.  The same command, started again, does what is missing.  The counts of earlier texts
stay as they are until the last commit replaces all of them at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.corpus import Corpus, read_corpus
from scansnap.corpus.count_job import (
    CountJob,
    count_margins,
    cut_queries,
    cut_texts,
    hash_and_count,
    share_memory,
)
from scansnap.corpus.counts import (
    MARGINS,
    TOKENIZER,
    VOCABULARY,
    CountedText,
    Counts,
    check_store_type,
    part_names,
    read_counts,
    store_info,
)
from scansnap.corpus.options import ALL, CountExecution, CountOptions
from scansnap.corpus.tables import CountRows, merge, read_table, write_tables
from scansnap.corpus.tokenizers import WORDS, Tokenizer
from scansnap.corpus.windows import count_occurrences, count_tables
from scansnap.runtime.errors import InputError, ScanSnapError, StoreError, brief
from scansnap.runtime.machine import available_threads
from scansnap.runtime.progress import progress_bar
from scansnap.runtime.ray import ray_cluster, run_on_ray
from scansnap.storage.folder import STAGED, CheckedFolder
from scansnap.storage.provenance import provenance
from scansnap.validation.options import from_names, options_as_kwargs, options_of
from scansnap.validation.validate import validated

WORK, RESULT = "work", ""
"""Where the tables of chunks are until they are added up, and those of the result, inside a store."""

RunPieces = Callable[..., Iterator[int]]


@dataclass(frozen=True, kw_only=True)
class CountCall(CountOptions, CountExecution):
    """A call of `count_corpus`, for its signature."""

    output: str | Path = "counts"
    add: bool = False
    progress: bool | None = None


@options_as_kwargs(CountCall, CountOptions, CountExecution)
@validated
def count_corpus(
    corpus: Corpus | str | Path,
    /,
    *,
    output: str | Path = "counts",
    add: bool = False,
    progress: bool | None = None,
    **kwargs: Any,
) -> Counts:
    """Count which tokens precede and follow every token of a text, and write the counts as Parquet tables.

    If the work is interrupted, the same call finishes it; if it is done already, the counts are read.

    Parameters
    ----------
    corpus : Corpus, or str or path
        What `read_corpus` returns or takes.  A text that is added is read with the tokenizer of the counts.  A path or
        name is read without holding anything out, unless `split` says so.
    {options}
    output : path
        The folder of the counts.
    add : bool
        Add the text to the counts in `output`.  A text that was counted before is not counted again.
    progress : bool, optional
        Show a progress bar, or nothing if false; by default a bar on a terminal, and elsewhere an occasional line.

    Returns
    -------
    Counts
        As `read_counts(output)`.

    Examples
    --------
    >>> counts = ss.count_corpus("example", output="counted")
    >>> counts.num_tokens, counts.window
    (32629, 35)
    """
    execution = CountExecution(**{name: kwargs.pop(name) for name in options_of(CountExecution) if name in kwargs})
    options = from_names(CountOptions, kwargs)
    output = Path(output)
    folder = CheckedFolder(output)
    with _locked(folder):
        base = read_counts(output) if folder.info.get("counts") is not None else None
        if not isinstance(corpus, Corpus):
            tokenizer = WORDS if base is None else base.tokenizer
            corpus = read_corpus(corpus, tokenizer=tokenizer, hold_out=options.split != ALL, progress=progress)
        job, sums = _make_job(corpus, options, execution, output, base, add)
        if job.texts:
            work = _Work(folder, job)
            try:
                work.count(corpus, execution, progress)
                work.finish(corpus, sums)
            except KeyboardInterrupt as stop:
                stop.add_note(work.state_sentence())
                raise
    return read_counts(output)


def stored_tokenizer(output: Path) -> Tokenizer | None:
    """The tokenizer of the counts in a folder, which a text that is added is read with; None if there are none."""
    folder = CheckedFolder(output)
    check_store_type(folder)
    return read_counts(output).tokenizer if folder.info.get("counts") is not None else None


@contextmanager
def _locked(folder: CheckedFolder) -> Iterator[None]:
    """The folder locked, recovered from a crash, and without unfinished work that the user has removed."""
    check_store_type(folder)
    work = folder.root / WORK
    try:
        folder.lock()
        job = folder.info.get("job")
        if job is not None and job["counted"] and not work.exists():
            for name in folder.files:
                if name.startswith(f"{WORK}/"):
                    folder.remove(name)
            folder.commit(store_info(folder.info["counts"]))
        elif job is None:
            shutil.rmtree(work, ignore_errors=True)  # left over from a crash
        with folder.locked():
            folder.refuse_damage()
            yield
    except OSError as error:
        raise _cannot_write(folder.root, error) from None


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


def _make_job(
    corpus: Corpus, options: CountOptions, execution: CountExecution, output: Path, base: Counts | None, add: bool
) -> tuple[CountJob, NDArray[np.int64]]:
    """What must be done (without new texts, nothing), and the margins after it."""
    counted = () if base is None else base.texts
    texts: list[CountedText] = []
    sums = np.zeros((len(MARGINS), corpus.vocab_size), np.int64)
    for split in _splits(corpus, options):
        ids = corpus.splits[split]
        digest, frequency = hash_and_count(ids, corpus.vocab_size)
        if digest not in {text.digest for text in (*counted, *texts)}:
            texts.append(CountedText(corpus.name, split, len(ids), digest))
            sums += count_margins(ids, frequency, options.window)
    if base is not None:
        _check_base(output, base, corpus, options, adding=bool(texts), allowed=add)
        sums += np.stack([base.vocabulary[name].values for name in MARGINS])
    cuts = base.cuts if base is not None else cut_queries(sums[0], options.window)
    chunks = cut_texts([text.tokens for text in texts], execution.memory * 2**30, options.window)
    fingerprint = corpus.tokenizer.fingerprint
    job = CountJob(options.window, options.least, corpus.vocab_size, fingerprint, tuple(texts), counted, cuts, chunks)
    return job, sums


def _check_base(
    output: Path, base: Counts, corpus: Corpus, options: CountOptions, *, adding: bool, allowed: bool
) -> None:
    is_same = base.tokenizer.fingerprint == corpus.tokenizer.fingerprint
    settings: dict[str, Any] = {"window": (base.window, options.window), "least": (base.least, options.least)}
    if not is_same:
        settings["tokenizer"] = base.tokenizer.name, corpus.tokenizer.name
    for name, (old, new) in settings.items():
        if old != new:
            raise StoreError(f"{output} was counted with {name} = {old}, not {new}: give that, or another output.")
    if not allowed and (adding or not is_same):
        raise StoreError(
            f"{output} holds the counts of other text, or with another vocabulary ({base.source}): give --add "
            "(add=True) to add this text, or another output."
        )
    if not is_same:
        raise StoreError(
            f"{output} was counted with another vocabulary: read the text with read_corpus(..., tokenizer="
            f"read_counts('{output}').tokenizer), or give another output."
        )
    if adding and base.least > 1:
        raise StoreError(
            f"{output} has no counts below {base.least}, so nothing can be added exactly: count all texts together, or "
            "with least 1."
        )


def count_piece(
    part: int, ids: NDArray[np.int32], before: int, job: CountJob, least: int, root: Path, where: str, block: int
) -> None:
    """Count one part of a chunk; the first `before` ids and the last are there to be read only."""
    stop = len(ids) - 1
    blocks = count_occurrences(ids, before, stop, job.queries(part), job.window, job.vocab_size, least, block)
    _write_drafts(root, where, part, job, blocks)


def merge_piece(part: int, sources: list[str], job: CountJob, root: Path, block: int) -> None:
    """Add up one part of the tables in some folders, and leave out triples that are too rare in all of them."""
    folder, batch = CheckedFolder(root), max(block // len(sources), 2**10)

    def blocks() -> Iterator[tuple[str, CountRows]]:
        for name, table in count_tables(job.vocab_size).items():
            files = [part_names(source, part)[name] for source in sources]
            for rows in merge([read_table(folder, file, table, batch) for file in files], job.vocab_size):
                least = job.least if name == "triples" else 1
                yield name, rows if least == 1 else rows.part(rows.counts >= least)

    _write_drafts(root, RESULT, part, job, blocks())


def _write_drafts(root: Path, where: str, part: int, job: CountJob, blocks: Iterable[tuple[str, CountRows]]) -> None:
    drafts = {table: root / f"{name}{STAGED}" for table, name in part_names(where, part).items()}
    try:
        write_tables(drafts, count_tables(job.vocab_size), blocks)
    except OSError as error:
        raise _cannot_write(root, error) from None


def _cannot_write(root: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {root} ({error.strerror or error}): what was counted before is kept; fix the cause and start "
        "the same command again."
    )


@contextmanager
def _piece_runner(execution: CountExecution, vocab_size: int) -> Iterator[tuple[RunPieces, int]]:
    """A function that does a piece of work for each of some parts, with other arguments, and the rows of a block."""
    memory = execution.memory * 2**30
    if execution.cluster is None:
        workers, block = share_memory(memory, vocab_size, available_threads())
        with ThreadPoolExecutor(workers) as pool:
            yield lambda piece, parts, *args: _run_on_threads(pool, piece, parts, args), block
        return
    with ray_cluster(execution.cluster) as ray:
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        _, block = share_memory(memory, vocab_size, cores)

        def run_pieces(piece: Any, parts: Iterable[int], *args: Any) -> Iterator[int]:
            for part, outcome in run_on_ray(ray, piece, parts, *args, retries=execution.retries):
                if isinstance(outcome, Exception):
                    raise ScanSnapError(
                        f"part {part} was not counted ({brief(outcome)}): what was counted is kept; start the same "
                        "command again to count what is missing."
                    )
                yield part

        yield run_pieces, block


def _run_on_threads(pool: ThreadPoolExecutor, piece: Any, parts: Iterable[int], args: tuple[Any, ...]) -> Iterator[int]:
    futures = {pool.submit(piece, part, *args): part for part in parts}
    try:
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    finally:
        for future in futures:
            future.cancel()


class _Work:
    """Work in progress on a store that is locked."""

    def __init__(self, folder: CheckedFolder, job: CountJob) -> None:
        """Begin a job, or go on with it; another one that was begun in the folder is refused."""
        self.folder, self.job = folder, job
        needs_merge = len(job.chunks) > 1 or bool(job.counted)
        self.sources = [f"{WORK}/{i:05d}/" for i in range(len(job.chunks))] if needs_merge else [RESULT]
        """Where the tables of each chunk are; those of the only chunk are the result."""
        begun = folder.info.get("job")
        if begun is None:
            folder.commit(store_info(folder.info.get("counts"), job.plain()))
        elif begun != job.plain():
            names = ", ".join(text["name"] for text in begun["texts"])
            raise StoreError(
                f"{folder.root} holds unfinished counts of {names}, with other text or options: finish them by the "
                f"same command, or remove {folder.root / WORK if begun['counted'] else folder.root}."
            )

    def _missing(self, where: str) -> list[int]:
        """The parts of some tables that were not committed."""
        parts = range(self.job.num_parts)
        return [part for part in parts if not self.folder.files.keys() >= set(part_names(where, part).values())]

    def count(self, corpus: Corpus, execution: CountExecution, progress: bool | None) -> None:
        """Do every piece that is missing, and commit it."""
        job, root = self.job, self.folder.root.absolute()  # workers have other working folders
        needs_merge = self.sources != [RESULT]
        least = 1 if needs_merge else job.least
        missing = {where: self._missing(where) for where in self.sources}
        # the parts of earlier counts are replaced together, in the end
        to_merge = [] if not needs_merge else list(range(job.num_parts)) if job.counted else self._missing(RESULT)
        total = job.num_parts * (len(self.sources) + needs_merge)
        done = total - sum(map(len, missing.values())) - len(to_merge)
        name = f"counting {', '.join(text.name for text in job.texts)}"
        with progress_bar(name, total, progress) as show, _piece_runner(execution, job.vocab_size) as (run, block):
            show(done)
            for chunk, where in zip(job.chunks, self.sources, strict=True):
                if not missing[where]:
                    continue
                before = min(chunk.first, job.window - 1)
                whole = corpus.splits[job.texts[chunk.text].split]
                ids = np.array(whole[chunk.first - before : chunk.stop + 1], np.int32)
                for part in run(count_piece, missing[where], ids, before, job, least, root, where, block):
                    self._adopt(where, part)
                    self.folder.commit()
                    done += 1
                    show(done)
            sources = [*self.sources, *([RESULT] if job.counted else [])]
            for part in run(merge_piece, to_merge, sources, job, root, block):
                self._adopt(RESULT, part)
                if not job.counted:
                    self.folder.commit()
                done += 1
                show(done)

    def _adopt(self, where: str, part: int) -> None:
        for name in part_names(where, part).values():
            self.folder.adopt(name)

    def state_sentence(self) -> str:
        """What interrupted work leaves, in a sentence."""
        all_parts = self.job.num_parts * len(self.sources)
        done = all_parts - sum(len(self._missing(where)) for where in self.sources)
        state = f"{done} of {all_parts} parts" if done < all_parts else "all parts, not yet added up"
        return f"{self.folder.root} holds {state}: start the same again to go on from there."

    def finish(self, corpus: Corpus, sums: NDArray[np.int64]) -> None:
        """Commit the result, with the margins of all texts, and remove the tables of chunks."""
        import pyarrow as pa
        from pyarrow import parquet

        job, folder = self.job, self.folder
        tokens = np.arange(job.vocab_size, dtype=np.int32)
        columns = {"token": tokens, "word": corpus.words(tokens), **dict(zip(MARGINS, sums, strict=True))}
        folder.write_with(
            VOCABULARY,
            lambda file: parquet.write_table(pa.table(columns), file, compression="zstd", store_schema=False),
        )
        if not job.counted:
            corpus.tokenizer.save(folder.root / TOKENIZER)
            for path in (folder.root / TOKENIZER).iterdir():
                folder.adopt(f"{TOKENIZER}/{path.name}")
        for name in folder.files:
            if name.startswith(f"{WORK}/"):
                folder.remove(name)
        description = {
            "window": job.window,
            "least": job.least,
            "vocab_size": job.vocab_size,
            "texts": [vars(text) for text in (*job.counted, *job.texts)],
            "tokenizer": corpus.tokenizer.name,
            "cuts": job.cuts,
            "origin": provenance(),
        }
        folder.commit(store_info(description))
        shutil.rmtree(folder.root / WORK, ignore_errors=True)
