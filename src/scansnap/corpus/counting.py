"""Counting a text into a store, and adding further texts to it.

While the work lasts, it is in a folder beside the store, `counts.partial`, which begins with the job.  The store itself
is always complete: the result takes its place in the end.  The same command, started again, finishes the work.
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
    check_disk,
    copy_ids,
    count_margins,
    cut_queries,
    cut_texts,
    hash_and_count,
    share_memory,
)
from scansnap.corpus.counts import (
    FORMAT,
    INFO,
    MARGINS,
    STORE_TYPE,
    TOKENIZER,
    VOCABULARY,
    CountedText,
    Counts,
    read_counts,
)
from scansnap.corpus.options import ALL, CountExecution, CountOptions
from scansnap.corpus.tables import (
    CHECKSUMS,
    Rows,
    import_parquet,
    is_complete,
    merge,
    read_piece,
    remove_drafts,
    write_piece,
)
from scansnap.corpus.tokenizers import WORDS
from scansnap.corpus.windows import TABLES, Occurrences, count_tables
from scansnap.results.provenance import provenance
from scansnap.runtime.errors import InputError, ScanSnapError, StoreError, brief
from scansnap.runtime.machine import available_threads
from scansnap.runtime.progress import progress_bar
from scansnap.runtime.ray import ray_cluster, run_on_ray
from scansnap.storage.files import DamagedFile, list_files, replace_file, sealed, sync
from scansnap.storage.lock import WriterLock
from scansnap.validation.options import called_as, from_names, options_of
from scansnap.validation.validate import validated

JOB, RESULT, REPLACED = "plan.json", "result", "replaced"

RunPieces = Callable[..., Iterator[None]]


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
    **kwargs: Any,
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
    execution = CountExecution(**{name: kwargs.pop(name) for name in options_of(CountExecution) if name in kwargs})
    options = from_names(CountOptions, kwargs)
    output = Path(output)
    with _locked(output):
        work = _Work(output)
        base = read_counts(output) if output.exists() else None
        if not isinstance(corpus, Corpus):
            corpus = read_corpus(corpus, tokenizer=WORDS if base is None else base.tokenizer, progress=progress)
        job, sums = _make_job(corpus, options, execution, output, base, add)
        if job.texts:
            if not work.folder.exists():
                check_disk(job, corpus, output)
            work.begin(job)
            try:
                work.count(corpus, execution, progress)
            except KeyboardInterrupt as stop:
                stop.add_note(work.state_sentence())
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


def count_piece(
    part: int, ids: NDArray[np.int32], before: int, job: CountJob, least: int, folder: Path, block: int
) -> None:
    """Count one part of a chunk; the first `before` ids and the last are there to be read only."""
    occurrences = Occurrences.find(ids, before, len(ids) - 1, job.queries(part), job.vocab_size)
    blocks = occurrences.count(ids, window=job.window, vocab_size=job.vocab_size, least=least, block=block)
    write_piece(folder, part, count_tables(job.vocab_size), blocks)


def merge_piece(part: int, sources: list[Path], job: CountJob, folder: Path, block: int) -> None:
    """Add up one part of the tables in some folders, and leave out triples that are too rare in all of them."""
    tables = count_tables(job.vocab_size)
    batch = max(block // len(sources), 2**10)

    def blocks() -> Iterator[tuple[str, Rows]]:
        for name, table in tables.items():
            for rows in merge([read_piece(source, name, table, part, batch) for source in sources], job.vocab_size):
                least = job.least if name == "triples" else 1
                yield name, rows if least == 1 else rows.part(rows.counts >= least)

    write_piece(folder, part, tables, blocks())


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

        def run_pieces(piece: Any, parts: Iterable[int], *args: Any) -> Iterator[None]:
            for part, outcome in run_on_ray(ray, piece, parts, *args, retries=execution.retries):
                if isinstance(outcome, Exception):
                    raise ScanSnapError(
                        f"part {part} was not counted ({brief(outcome)}): what was counted is kept; start the same "
                        "command again to count what is missing."
                    )
                yield

        yield run_pieces, block


def _run_on_threads(
    pool: ThreadPoolExecutor, piece: Any, parts: Iterable[int], args: tuple[Any, ...]
) -> Iterator[None]:
    futures = [pool.submit(piece, part, *args) for part in parts]
    try:
        for future in as_completed(futures):
            future.result()
            yield
    finally:
        for future in futures:
            future.cancel()


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

    def begin(self, job: CountJob) -> None:
        """Go on with the job in the folder, or begin this one there."""
        file = self.folder / JOB
        self.job = job
        if file.exists():
            try:
                old = CountJob.from_json(file.read_bytes())
            except DamagedFile:
                raise StoreError(f"{file} is damaged: remove {self.folder} and start the same command again.") from None
            if old.has_same_result(job):
                self.job = old
                return
            if not set(old.texts) <= set(job.counted):  # which only a folder that was not yet removed has
                names = ", ".join(text.name for text in old.texts)
                raise StoreError(
                    f"{self.folder} holds unfinished counts of {names}, with other text or options: finish them by the "
                    "same command, or remove that folder."
                )
        with self._writing():
            self.clear()
            self.folder.mkdir(parents=True)
            replace_file(file, job.to_json())

    @property
    def _chunk_folders(self) -> list[Path]:
        """The folder of each chunk's tables; those of the only chunk are the result."""
        if len(self.job.chunks) == 1 and not self.job.counted:
            return [self.folder / RESULT]
        return [self.folder / "runs" / f"{i:05d}" for i in range(len(self.job.chunks))]

    def _missing(self, folder: Path) -> list[int]:
        return [part for part in range(self.job.num_parts) if not is_complete(folder, part)]

    def count(self, corpus: Corpus, execution: CountExecution, progress: bool | None) -> None:
        """Do every piece that is missing."""
        import_parquet()
        job, folders, result = self.job, self._chunk_folders, self.folder / RESULT
        needs_merge = folders != [result]
        total = job.num_parts * (len(folders) + needs_merge)
        name = f"counting {', '.join(text.name for text in job.texts)}"
        done = total - sum(len(self._missing(folder)) for folder in {*folders, result})
        with progress_bar(name, total, progress) as show, _piece_runner(execution, job.vocab_size) as (run, block):
            show(done)
            for chunk, folder in zip(job.chunks, folders, strict=True):
                if not (missing := self._missing(folder)):
                    continue
                before = min(chunk.first, job.window - 1)
                ids = copy_ids(corpus.splits[job.texts[chunk.text].split], chunk.first - before, chunk.stop + 1)
                least = 1 if needs_merge else job.least
                for _ in run(count_piece, missing, ids, before, job, least, folder, block):
                    done += 1
                    show(done)
            sources = [*folders, *([self.output] if job.counted else [])]
            for _ in run(merge_piece, self._missing(result), sources, job, result, block) if needs_merge else ():
                done += 1
                show(done)

    def state_sentence(self) -> str:
        """What interrupted work leaves, in a sentence."""
        missing = sum(len(self._missing(folder)) for folder in self._chunk_folders)
        all_parts = self.job.num_parts * len(self.job.chunks)
        state = f"{all_parts - missing} of {all_parts} parts" if missing else "all parts, not yet added up"
        return f"{self.folder} holds {state}: start the same again to go on from there."

    def finish(self, corpus: Corpus, sums: NDArray[np.int64]) -> None:
        """Complete the result, with the margins of all texts, and let it take its place."""
        import pyarrow as pa

        job, result = self.job, self.folder / RESULT
        tokens = np.arange(job.vocab_size, dtype=np.int32)
        description = {
            "kind": STORE_TYPE,
            "format": FORMAT,
            "window": job.window,
            "least": job.least,
            "vocab_size": job.vocab_size,
            "texts": [vars(text) for text in (*job.counted, *job.texts)],
            "tokenizer": corpus.tokenizer.name,
            "cuts": job.cuts,
            "origin": provenance(),
        }
        columns = {"token": tokens, "word": corpus.words(tokens), **dict(zip(MARGINS, sums, strict=True))}
        with self._writing():
            remove_drafts(result, TABLES)
            import_parquet().write_table(pa.table(columns), result / VOCABULARY, compression="zstd", store_schema=False)
            corpus.tokenizer.save(result / TOKENIZER)
            files = list_files(result, leave_out={*TABLES, CHECKSUMS, INFO})
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
        """Remove the folder, the job first: without it, what is left has no meaning."""
        (self.folder / JOB).unlink(missing_ok=True)
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
