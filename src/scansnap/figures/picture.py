"""Pictures on disk."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from scansnap.runtime.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_picture(figure: Figure, target: Path, where: str = "") -> Path:
    """Write a matplotlib figure, all of it or nothing; the ending of the file name decides the format."""
    draft = target.with_name(f".{target.name}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(draft, dpi=150, format=target.suffix[1:].lower())
        draft.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):  # where a folder is a file, there is none
            draft.unlink()
        raise InputError(f"cannot write the picture {target}: {error.strerror or error}{where}.") from None
    return target
