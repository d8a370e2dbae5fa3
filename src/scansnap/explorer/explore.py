"""The explorer in a notebook, as a widget: the page itself, inside the output of a cell."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

from scansnap.data.source import DataSource
from scansnap.dynamics.options import TrainOptions
from scansnap.explorer.page import address_of, page_of
from scansnap.runtime.errors import InputError, ScanSnapError
from scansnap.validation import checks
from scansnap.validation.validate import validated

SCRIPT = """
export default {
  render({ model, el }) {
    const frame = document.createElement("iframe");
    frame.title = "scansnap explorer";
    frame.style = `width: 100%; height: ${model.get("height")}px; border: 0;`;
    frame.srcdoc = model.get("page");
    const hear = ({ source, data }) => {
      if (source !== frame.contentWindow || typeof data?.scansnapAddress !== "string") return;
      model.set("address", data.scansnapAddress);
      model.save_changes();
    };
    window.addEventListener("message", hear);
    el.append(frame);
    return () => window.removeEventListener("message", hear);
  },
};
"""


class Explorer(Protocol):
    """The explorer in a notebook."""

    address: str  # where the controls are, as after # in the page's own address
    height: int  # in pixels


@validated
def explore(
    classes: DataSource | str = "syn-small",
    options: TrainOptions | None = None,
    /,
    *,
    height: int = 900,
    **words: object,
) -> Explorer:
    """Show the explorer in a notebook (Jupyter, marimo, or any that shows anywidget): the page of `scansnap explore`.

    Parameters
    ----------
    classes : SequenceClasses or a name
        What to learn from; also the path of a classes file.
    options : TrainOptions, or options of `train` by name
        Where the controls begin.
    height : int
        In pixels.

    Examples
    --------
    >>> widget = ss.explore("syn-small", lr_y=2)
    >>> widget.address
    '#classes=syn-small&lr_y=2'
    """
    if options is not None and words:
        raise InputError(f"{', '.join(words)} is given beside options: change the options with dataclasses.replace.")
    address = address_of(classes, words if options is None else options)
    checks.integer("height", height, least=200, most=10_000)
    return _widget()(page=page_of(address, "embedded"), address=address, height=height)


@cache
def _widget() -> Any:
    """The class of the widget, which needs a package that is not always there."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise ScanSnapError(
            "explore needs anywidget: install scansnap[notebook], or use the command scansnap explore."
        ) from None

    class ExplorerWidget(anywidget.AnyWidget):
        """An `Explorer`."""

        _esm = SCRIPT
        page = traitlets.Unicode().tag(sync=True)
        address = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)

    return ExplorerWidget
