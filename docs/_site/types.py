"""Types as a reader knows them: what an argument may be, without how it is checked or what NumPy calls it inside."""

from __future__ import annotations

import re

from scansnap.dynamics.options import Rates, Seeds
from scansnap.dynamics.start import Init, PositionBias, Prior

HOME = r"~?(?:\w+\.)*"
ARRAY_LIKE = re.compile(
    rf"{HOME}Union\[{HOME}_Buffer, .*?\[complex \| bytes \| str\]\]|{HOME}_Buffer \| .*?\[complex \| bytes \| str\]"
)
ARRAY = re.compile(rf"{HOME}ndarray\[tuple\[{HOME}Any, \.\.\.\], {HOME}dtype\[{HOME}(\w+)\]\]")
OWN = re.compile(r" \| StartArrays")
"""What the package makes of a pair of arrays."""

ALIASES = {"Rates": Rates, "Seeds": Seeds, "Init": Init, "Prior": Prior, "PositionBias": PositionBias}


def short_types(text: str) -> str:
    """A signature or a type: annotated types are bare, arrays short, names of unions what they stand for, and functions
    that are defaults are called by their names."""
    text = re.sub(r"<function (\w+)(?: at \w+)?>|TypeAliasForwardRef\('(\w+)'\)", r"\1\2", text)
    text = text.replace("<factory>", "...")  # empty, and made anew for each
    text = ARRAY.sub(r"NDArray[\1]", ARRAY_LIKE.sub("ArrayLike", _bare(text)))
    return re.sub(rf"\b({'|'.join(ALIASES)})\b", lambda match: _written_out(match[1]), text)


def _written_out(name: str) -> str:
    return OWN.sub("", re.sub(HOME, "", ARRAY.sub("NDArray", ARRAY_LIKE.sub("ArrayLike", str(ALIASES[name])))))


def _bare(text: str) -> str:
    """The text with `T` for each `Annotated[T, ...]`."""
    while (start := re.search(rf"{HOME}Annotated\[", text)) is not None:
        depth, comma, end = 1, None, start.end()
        while depth:
            sign = text[end]
            depth += (sign in "[({") - (sign in "])}")
            if sign == "," and depth == 1 and comma is None:
                comma = end
            end += 1
        text = text[: start.start()] + text[start.end() : comma] + text[end:]
    return text
