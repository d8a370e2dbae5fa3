"""How many threads to use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def available_threads() -> int:
    """Threads to use: OMP_NUM_THREADS if it is set, as schedulers do for their workers, otherwise one per core."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def let_waiting_threads_sleep() -> None:
    """Keep threads of linear algebra from spinning until there is work; call this before NumPy is imported.

    OpenBLAS starts its threads on import, and each keeps a core busy for a while before it sleeps: without this, half
    the processor time of importing NumPy.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # the least: 2^4 cycles


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra and tensor operations on the calling thread.

    On arrays of a few thousand numbers a second thread gains nothing, and if other programs use the cores, waiting
    for it costs up to fifty times the work itself.  Without threadpoolctl this does nothing.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(limits=1):
        yield


@contextmanager
def one_tensor_thread() -> Iterator[None]:
    """Keep only tensor operations on the calling thread; this call costs nothing."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
