"""Text in windows: in columns that are read in parallel for training, one after another for measurements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError

Tokens = NDArray[np.integer]

MEASURED_TOKENS = 2_000_000
"""The most tokens of the validation split that are measured."""


class Columns:
    """The training text cut into `batch_size` columns; each update reads the next `window` tokens of every column.

    After the last complete window, reading starts again at the top.
    """

    def __init__(self, tokens: Tokens, batch_size: int, window: int) -> None:
        length = len(tokens) // batch_size
        self.window = window
        self.per_pass = (length - 1) // window
        if self.per_pass < 1:
            raise InputError(
                f"the training text has {len(tokens):,} tokens, too few for a batch of {batch_size} windows of "
                f"{window} tokens and a next token: give more text, or a smaller batch or window."
            )
        self.columns = tokens[: length * batch_size].reshape(batch_size, length)  # on disk if the tokens are

    def at(self, step: int, rows: slice = slice(None)) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and next tokens (B, T) of the update after `step` updates, for some of the columns."""
        first = step % self.per_pass * self.window
        block = self.columns[rows, first : first + self.window + 1].astype(np.int64)
        return block[:, :-1], block[:, 1:]


def consecutive(tokens: Tokens, window: int) -> NDArray[np.int64]:
    """The text as windows (N, window + 1) that overlap by one token, so that a row contains inputs and next tokens.

    From a text of more than `MEASURED_TOKENS` tokens, evenly spread windows are taken.
    """
    windows = every_window(tokens, window, "validation")
    return spread(windows, max(1, MEASURED_TOKENS // window)).astype(np.int64)


def every_window(tokens: Tokens, window: int, split: str = "training") -> Tokens:
    """A view of the text as windows (N, window + 1) that overlap by one token."""
    count = (len(tokens) - 1) // window
    if count < 1:
        raise InputError(
            f"the {split} text has {len(tokens):,} tokens, fewer than a window of {window} tokens and a next token: "
            "give more text, or a smaller window."
        )
    return np.lib.stride_tricks.sliding_window_view(tokens, window + 1)[: count * window : window]


def spread(windows: Tokens, count: int | None) -> Tokens:
    """`count` windows, evenly spread from the first to the last, or all windows if there are fewer."""
    if count is None or count >= len(windows):
        return windows
    return windows[np.linspace(0, len(windows) - 1, count).round().astype(np.int64)]
