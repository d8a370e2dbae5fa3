"""The command line's pictures as functions of results: `ss.plot`.

Each returns a matplotlib Figure, to show in a notebook or to save:

    ss.plot.attention(ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=100)).savefig("attention.png")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import xarray as xr

from scansnap.figures.phase_diagram import phase_diagram
from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation.validate import validated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scansnap.claims.claim import Verdict

__all__ = ["attention", "claim", "phase_diagram", "quantities", "text", "words"]


def __dir__() -> list[str]:
    return __all__


@validated
def attention(result: xr.Dataset, *, run: int = 0) -> Figure:
    """Attention of each class over a run of `train` or `flow`, with loss and entropy, and where it snapped.

    >>> figure = ss.plot.attention(ss.train("syn-small", lr_y=5.0, lr_z=10.0, steps=60, momentum=0.9))
    """
    from scansnap.figures import attention_over_time

    return attention_over_time.draw(attention_over_time.prepare(result, run=run))


@validated
def claim(verdict: Verdict) -> Figure:
    """What a claim predicts and what exact dynamics give: of a verdict of `verify`.

    >>> figure = ss.plot.claim(ss.verify("lemma_6")[0])
    """
    from scansnap.claims.claim import Verdict
    from scansnap.figures import claim as picture

    if not isinstance(verdict, Verdict):
        raise InputError(f"verdict is {short_repr(verdict)}: give one of those that verify returns.")
    return picture.draw(verdict)


@validated
def quantities(result: xr.Dataset) -> Figure:
    """Every recorded quantity of runs of any system over steps or time, one panel each.

    >>> figure = ss.plot.quantities(ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=100, record="loss"))
    """
    from scansnap.figures import over_time

    return over_time.draw(result)


@validated
def text(result: xr.Dataset) -> Figure:
    """A run of `train_text`: its loss, how sparse each head's attention is, and how fast it moves.

    >>> corpus = ss.read_corpus("example")
    >>> figure = ss.plot.text(ss.train_text(corpus, steps=4, width=8, feed_forward=8, record_every=1))
    """
    from scansnap.figures import text_attention

    return text_attention.draw_curves(text_attention.prepare_curves(result))


@validated
def words(
    result: xr.Dataset, *, steps: Sequence[int] | None = None, layer: int = 0, head: int = 0, window: int = 0
) -> Figure:
    """Attention of a run of `train_text` with the words on both axes, at several steps: rows attend to columns.

    Parameters
    ----------
    result : xarray.Dataset
        What `train_text` returned.
    steps : sequence of int, optional
        Steps to show: the nearest that were recorded; by default four, evenly spaced.
    layer, head, window : int
        Which pattern, from 0; windows are those of the validation split.

    Examples
    --------
    >>> run = ss.train_text(ss.read_corpus("example"), steps=4, width=8, feed_forward=8, record_every=1)
    >>> figure = ss.plot.words(run, steps=[0, 4])
    """
    from scansnap.figures import text_attention

    shown = text_attention.prepare_words(result, steps=steps, layer=layer, head=head, window=window)
    return text_attention.draw_words(shown)
