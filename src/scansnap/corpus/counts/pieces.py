"""The pieces of a plan, each a function of what it reads: on threads of this process, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.corpus.counts.events import Rows, count_events, find_occurrences
from scansnap.corpus.counts.merging import merge
from scansnap.corpus.counts.options import CountExecution
from scansnap.corpus.counts.plan import BATCH_ROWS, FAN_IN, Plan, workers_and_block
from scansnap.corpus.counts.tables import COLUMNS, is_written, read_part, remove_part, write_part
from scansnap.runtime.errors import ScanSnapError, brief
from scansnap.runtime.machine import available_threads

Runner = Callable[..., Iterator[None]]


def count_piece(
    part: int, ids: NDArray[np.int32], before: int, plan: Plan, least: int, folder: Path, block: int
) -> None:
    """Count one part of a chunk; the first `before` ids and the last are there to be read only."""
    occurrences = find_occurrences(ids, before, len(ids) - 1, plan.queries(part), plan.vocab_size)
    blocks = count_events(ids, occurrences, window=plan.window, least=least, vocab_size=plan.vocab_size, capacity=block)
    write_part(folder, part, blocks)


def merge_piece(
    part: int, runs: list[Path], base: Path | None, work: Path, result: Path, plan: Plan, block: int
) -> None:
    """Add up one part of all tables, in rounds of `FAN_IN`, and remove what was added up."""
    rounds: dict[Path, list[Path]] = {}  # the sources of each table that is made
    level = 0
    while len(runs) > FAN_IN - 1:  # a place is for the base
        level += 1
        grouped = [runs[first : first + FAN_IN] for first in range(0, len(runs), FAN_IN)]
        runs = [work / f"merged-{level}" / f"{i:05d}" for i in range(len(grouped))]
        rounds.update(zip(runs, grouped, strict=True))
    rounds[result] = runs

    def make(target: Path) -> None:
        if target not in rounds or is_written(target, part):  # then what it was made from may be gone
            return
        for source in rounds[target]:
            make(source)
        is_last = target == result
        sources = [*rounds[target], *([base] if base and is_last else [])]
        write_part(target, part, _merged(sources, part, plan, plan.least if is_last else 1, block))
        for source in rounds[target]:
            remove_part(source, part)

    make(result)


def _merged(sources: list[Path], part: int, plan: Plan, least: int, block: int) -> Iterator[tuple[str, Rows]]:
    for table, columns in COLUMNS.items():
        blocks = merge(
            [read_part(source, table, part, BATCH_ROWS) for source in sources],
            num_keys=len(columns) - 2,
            least=least if table == "triples" else 1,
            vocab_size=plan.vocab_size,
            batch=BATCH_ROWS,
            capacity=block,
        )
        for rows in blocks:
            yield table, rows


@contextmanager
def runner(how: CountExecution, vocab_size: int) -> Iterator[tuple[Runner, int]]:
    """A function that does a piece for each of some parts, with other arguments, and the rows of a block."""
    memory = how.memory * 2**30
    if how.cluster is None:
        workers, block = workers_and_block(memory, vocab_size, available_threads())
        with ThreadPoolExecutor(workers) as pool:
            yield lambda piece, parts, *more: _on_threads(pool, piece, parts, more), block
        return
    from scansnap.dynamics.sweeps.workers import as_they_come, ray_cluster

    with ray_cluster(how.cluster) as ray:
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        _, block = workers_and_block(memory, vocab_size, cores)

        def on_ray(piece: Any, parts: Iterable[int], *more: Any) -> Iterator[None]:
            task = ray.remote(piece).options(num_cpus=1, max_retries=how.retries, retry_exceptions=False)
            shared = [ray.put(value) for value in more]
            for part, outcome in as_they_come(ray, lambda part: task.remote(part, *shared), parts):
                if isinstance(outcome, Exception):
                    raise ScanSnapError(
                        f"part {part} was not counted ({brief(outcome)}): what was counted is kept; start the same "
                        "command again to count what is missing."
                    )
                yield

        yield on_ray, block


def _on_threads(pool: ThreadPoolExecutor, piece: Any, parts: Iterable[int], more: tuple[Any, ...]) -> Iterator[None]:
    futures = [pool.submit(piece, part, *more) for part in parts]
    try:
        for future in as_completed(futures):
            future.result()
            yield
    finally:
        for future in futures:
            future.cancel()
