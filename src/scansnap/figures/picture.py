"""Pictures on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scansnap.base.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_picture(figure: Figure, target: Path, where: str = "") -> Path:
    """Write a matplotlib figure and return its path; the ending of the file name decides the format."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=150)
    except OSError as error:
        raise InputError(f"cannot write the picture {target}: {error.strerror or error}{where}.") from None
    return target
