"""Compiled functions kept on disk as plain machine code.

To read what it kept, numba imports itself and all that it would compile with, which takes longer than most runs.  The
functions here take named tuples of arrays and numbers by their addresses, and touch nothing of Python.  Their machine
code needs a loader alone, and numba is imported only where there is no code yet.

A named tuple lies in memory as numba has it: one word of eight bytes for each number, which two truth values side by
side would share, and for an array

    (two words that are not used), size, bytes of an entry, address, its shape, its strides.

The code is for one kind of each array, for the processor that it was compiled on, and for the sources that it was
compiled from: its file is named for all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from scansnap.runtime.errors import StoreError
from scansnap.runtime.source_stamp import PACKAGE, source_stamp
from scansnap.storage.cache import cache_folder
from scansnap.storage.files import replace_file

Function = Callable[..., int]

_NOTHING = np.zeros(1, np.int64)
"""Where functions write their result and their errors, of which there are none."""


class Packed:
    """A named tuple as compiled code reads it: made once where it is passed many times, and its arrays stay."""

    def __init__(self, fields: tuple[Any, ...]) -> None:
        self.fields, self.kinds, self.words = fields, _kinds(fields), _words(fields)


class KeptFunction:
    """The function called `name` in a module, which is compiled, once, when it is first called.

    Its arguments are named tuples, packed or not.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name
        self._functions: dict[str, Function] = {}
        self._loaded: list[Any] = []

    def __call__(self, *arguments: Any) -> None:
        packed = [argument if isinstance(argument, Packed) else Packed(argument) for argument in arguments]
        kinds = ";".join(argument.kinds for argument in packed)
        function = self._functions.get(kinds)
        if function is None:
            function = self._functions[kinds] = self._find(kinds, tuple(argument.fields for argument in packed))
        function(_NOTHING.ctypes.data, _NOTHING.ctypes.data, *(argument.words.ctypes.data for argument in packed))

    def is_kept(self) -> bool:
        """Whether an earlier process left machine code on disk, made from the same sources."""
        return any(any(folder.glob(f"{self._prefix}-*.o")) for folder in _folders())

    @property
    def _prefix(self) -> str:
        return f"{self._module}.{self._name}-{source_stamp(self._module):08x}"

    def _find(self, kinds: str, arguments: tuple[Any, ...]) -> Function:
        import llvmlite.binding as llvm

        processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
        versions = [version(package) for package in ("numba", "llvmlite")]
        name = f"{self._prefix}-{zlib.crc32(' '.join([kinds, processor, *versions]).encode()):08x}.o"
        symbol, code = next(filter(None, (_read(folder / name) for folder in _folders())), ("", b""))
        if not code:
            from scansnap.runtime.inner_function import machine_code

            symbol, code, sizes = machine_code(getattr(import_module(self._module), self._name), arguments)
            assert sizes == [8 * len(_words(argument)) for argument in arguments]
            _write(name, symbol, code)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self._loaded.append(engine)  # the code lives as long
        pointers = [ctypes.c_void_p] * (2 + len(arguments))
        return ctypes.CFUNCTYPE(ctypes.c_int32, *pointers)(engine.get_function_address(symbol))


def _kinds(fields: tuple[Any, ...]) -> str:
    """What code depends on: the type of each number, and of each array also its axes and whether it has gaps."""
    return " ".join(map(_kind, fields))


def _kind(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    return f"{value.dtype.str}{value.ndim}{'' if value.flags.c_contiguous else 'gaps'}"


def _words(fields: tuple[Any, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    words: list[int] = []
    for value in fields:
        if isinstance(value, np.ndarray):
            address = value.__array_interface__["data"][0]
            words += (0, 0, value.size, value.itemsize, address, *value.shape, *value.strides)
        elif isinstance(value, float):
            words += struct.unpack("q", struct.pack("d", value))
        elif isinstance(value, int | np.int64 | np.bool_):
            words.append(int(value))
        else:
            raise TypeError(f"compiled code takes no {type(value).__name__} by its address")
    return np.array(words, np.int64)


def _folders() -> Iterator[Path]:
    """Where code may be kept, best first: where numba is told to, beside the sources, or in the user's cache."""
    if told := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(told)
        return
    yield PACKAGE / "__pycache__"
    with contextlib.suppress(StoreError):  # there may be no home
        yield cache_folder() / "code"


def _read(path: Path) -> tuple[str, bytes] | None:
    """The symbol and the code in a file, if there is one and it is whole."""
    try:
        first, _, code = path.read_bytes().partition(b"\n")
        symbol, checksum = first.decode().split()
        return (symbol, code) if int(checksum) == zlib.crc32(code) else None
    except (OSError, ValueError):
        return None


def _write(name: str, symbol: str, code: bytes) -> None:
    """Keep it where that is possible; otherwise every process compiles."""
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / name, f"{symbol} {zlib.crc32(code)}\n".encode() + code)
            return
