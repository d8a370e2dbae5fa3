"""A text of a few hundred words and a minimal model that learns from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import scansnap as ss
from scansnap.text.corpus import Corpus
from scansnap.text.options import TextOptions

SMALL: dict[str, Any] = {"width": 12, "feed_forward": 8, "window": 7, "batch_size": 4, "heads": 2, "patterns": 2}


def options(**changes: Any) -> TextOptions:
    return TextOptions(**{"steps": 20, "record_every": 5, "batch_size": 4, "lr_y": 1.0, "lr_z": 1.0, **changes})


def small_corpus(folder: Path) -> Corpus:
    """Sixty lines in which the third word decides the last."""
    animals, sounds = ("cat", "dog", "cow", "hen"), ("purrs", "barks", "lows", "clucks")
    lines = [f"the old {animals[i % 4]} by the {['gate', 'wall', 'barn'][i % 3]} {sounds[i % 4]} ." for i in range(60)]
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    (folder / "valid.txt").write_text("\n".join(lines[:11]) + "\n")
    return ss.read_corpus(folder)
