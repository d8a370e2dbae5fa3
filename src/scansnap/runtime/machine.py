"""What this machine has: threads, memory, a GPU, and optional packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scansnap.runtime.errors import InputError

if TYPE_CHECKING:
    import torch

GROUPS_OF_PROCESS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""Where Linux lists the control groups of this process, and their limits."""

TORCH_EXTRA = {"torch": "PyTorch", "safetensors": "safetensors"}
"""The packages of the extra `torch`, by module."""


# --- threads ------------------------------------------------------------------------------------------------------


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
    for it costs up to fifty times the work itself.
    """
    from threadpoolctl import threadpool_limits

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


# --- memory -----------------------------------------------------------------------------------------------------------


def physical_memory() -> int:
    """Bytes of memory in this machine, or in the container that this process runs in."""
    return min([_memory_of_machine(), *_group_limits()])


def _memory_of_machine() -> int:
    if sys.platform == "win32":
        import ctypes

        status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its own size in bytes, the physical memory, and others
        ctypes.windll.kernel32.GlobalMemoryStatusEx(status)
        return status[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group_limits() -> Iterator[int]:
    """The limits of the control groups around this process, beyond which it would be killed.

    Containers and schedulers set them.  In a container the path of the group may be that of the machine outside, of
    which only the top is seen, so that all groups above are looked at too.
    """
    for _, controllers, path in (line.split(":", 2) for line in _content(GROUPS_OF_PROCESS).splitlines()):
        if controllers == "":  # version 2
            root, file = GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            limit = _content(root.joinpath(*parts[:depth], file)).strip()
            if limit.isdigit():  # or "max"
                yield int(limit)


def _content(file: Path) -> str:
    """What is in a file; nothing if it is not there, or not for this process."""
    try:
        return file.read_text()
    except OSError:
        return ""


def check_memory(what: str, needed: float, advice: str) -> None:
    """Refuse what does not fit in this machine's memory, before anything is done."""
    if needed > physical_memory():
        raise InputError(
            f"{what} {gibibytes(needed)}, more than this machine's {gibibytes(physical_memory())}: {advice}."
        )


def gibibytes(size: float) -> str:
    """A number of bytes in readable form, in smaller units if it is far below a gibibyte."""
    unit, name = next(
        ((unit, name) for unit, name in ((2**30, "GiB"), (2**20, "MiB")) if size >= unit / 100), (2**10, "KiB")
    )
    return f"{size / unit:.2g} {name}" if size < 10 * unit else f"{size / unit:,.0f} {name}"


# --- devices and optional packages ------------------------------------------------------------------------------------


def find_device(name: str) -> torch.device:
    """The torch device with this name; refused if this machine does not have it."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda but PyTorch finds no CUDA device here: use device='cpu'.")
    return torch.device(name)


def import_optional(module: str, *, what: str, package: str, extra: str, instead: str = "") -> Any:
    """A module of an optional package; if that is missing, an `InputError` says that `what` needs it."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(
            f"{what} needs {package}, which is not installed here: run pip install '.[{extra}]' in your clone of "
            f"scansnap{f', or {instead}' if instead else ''}."
        ) from None


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """For imports of files about tensors: if what they need is missing, an `InputError` says that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        needed = TORCH_EXTRA.get((error.name or "").split(".")[0])
        if needed is None:
            raise
        raise InputError(
            f"{what} needs {needed}, which is not installed here: run pip install '.[torch]' in your clone of scansnap "
            "(without a GPU, read docs/installation.md first)."
        ) from None
