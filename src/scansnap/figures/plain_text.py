"""Text for a picture: names that users give stay names there, whatever they hold.

Matplotlib reads what stands between two dollar signs as mathematics, and stops where it is none.
"""

from __future__ import annotations

from scansnap.runtime.errors import printable

LONGEST = 40
"""Characters of a name; a longer one would push the picture out of its frame."""


def plain(name: object, most: int = LONGEST) -> str:
    """A name for a picture: in one line, cut if it is long, its dollar signs no delimiters."""
    return printable(str(name), most).replace("$", r"\$")
