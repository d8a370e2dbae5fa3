"""Run a user's Python file or function and report any mistake in it in one sentence."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from scansnap.runtime.errors import InputError, ScanSnapError


def run_user_file(path: str | Path) -> ModuleType:
    """The module defined by a Python file."""
    path = Path(path)
    module = ModuleType(f"<{path}>")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses, for example, look up the file's names here
    sys.path.insert(0, str(path.parent))  # as for a script: modules beside the file can be imported
    try:
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except OSError as error:
        raise InputError(f"cannot read the file {path}: {error.strerror or error}.") from None
    except (Exception, SystemExit) as error:
        raise InputError(f"cannot run the file {path}: {described_error(error, str(path))}.") from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def called(name: str, function: Callable[..., object], *arguments: object) -> object:
    """What a user's function gives; an error in it is a sentence that begins with the name."""
    try:
        return function(*arguments)
    except BrokenPipeError:  # a command's own function prints, and nobody reads on
        raise
    except Exception as error:
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        raise InputError(f"{name} fails with {described_error(error, file)}.") from error


def user_mistake(error: BaseException) -> str | None:
    """The error in words, if it comes out of a user's file that was run here."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = [file for file in files if f"<{file}>" in sys.modules]
    return f"{described_error(error, own[-1])}." if own else None


def described_error(error: BaseException, file: str = "") -> str:
    """An exception in words: its message, its type unless it is scansnap's own, and the last line of the file in it."""
    message = " ".join(str(error).split()).removesuffix(".")
    if not isinstance(error, ScanSnapError):
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{message} ({Path(file).name}, line {lines[-1]})" if lines else message
