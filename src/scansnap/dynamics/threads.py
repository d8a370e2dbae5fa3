"""Small systems are solved on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep linear algebra and tensor operations on the calling thread.

    On arrays of some thousand numbers a second thread gains nothing, and waiting for it costs up to fifty times the
    work itself where other programs use the cores.  Without threadpoolctl nothing is changed.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(limits=1):
        yield
