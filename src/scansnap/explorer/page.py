"""The explorer's page with an experiment in it, as a file or as a widget in a notebook.

The page keeps its whole state in its address, after #, under the library's own names:

    #classes=syn-small&lr_y=1&lr_z=1&steps=100&batch_size=none&seq_len=inf

`classes` is a name, or a classes file as JSON.  A page that is written to a file, or shown inside another one, has its
first address in its head instead, where no browser cuts or drops it.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

from scansnap.data.named_classes import as_source, classes_to_mapping
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource
from scansnap.dynamics.options import TrainOptions
from scansnap.runtime.errors import InputError, ScanSnapError, short_repr
from scansnap.validation import checks
from scansnap.validation.options import from_names, options_of, refuse_options_object
from scansnap.validation.validate import validated

PAGE = Path(__file__).with_name("explorer.html")

OPTIONS = (
    "lr_y",
    "lr_z",
    "seeds",
    "steps",
    "batch_size",
    "seq_len",
    "optimizer",
    "momentum",
    "decoder_gradient",
    "init",
    "residual",
    "normalization",
)
"""The options of `train` that the explorer has."""

OPTIONS_WITHOUT_EFFECT = ("record", "record_every", "dtype", "device")
"""Options that affect rounding only: the page records what it shows, in float64."""

NAMES = ("syn-small", "syn-medium-1", "syn-medium-3", "syn-medium-5", "syn-medium-10", "single-common")
"""The classes that the page knows by name."""

FIRST_OPTIONS = {"lr_y": 1.0, "lr_z": 1.0, "steps": 100}
"""What the page begins with where `train` has no default."""

VISIBLE_OPTIONS = {"lr_y": 5.0, "lr_z": 10.0, "momentum": 0.9, "steps": 60}
"""Options with which small classes visibly scan and snap; the page begins with them for the user's own classes."""

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


@refuse_options_object
@validated
def explore(classes: DataSource | str | None = None, /, *, height: int = 900, **kwargs: object) -> Explorer:
    """Show the explorer in a notebook (Jupyter, marimo, or any that shows anywidget): the page of `scansnap explore`.

    Parameters
    ----------
    classes : SequenceClasses or a name
        What to learn from; also the path of a classes file.  By default two topics in words.
    height : int
        In pixels.
    **kwargs
        The initial values of the controls: options of `train`.

    Examples
    --------
    >>> widget = ss.explore("syn-small", lr_y=2)
    >>> widget.address
    '#classes=syn-small&lr_y=2'
    """
    address = address_of(classes, kwargs)
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
            "explore needs anywidget, which is not installed here: run pip install '.[notebook]' in your clone of "
            "scansnap, or use the command scansnap explore."
        ) from None

    class ExplorerWidget(anywidget.AnyWidget):
        """An `Explorer`."""

        _esm = SCRIPT
        page = traitlets.Unicode().tag(sync=True)
        address = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)

    return ExplorerWidget


def page_of(address: str, view: Literal["", "embedded"] = "") -> str:
    """The page, opened at an address; the embedded view leaves out what explains it."""
    text = PAGE.read_text(encoding="utf-8")
    for name, value in (("address", address), ("view", view)):
        place = f'<meta name="scansnap-{name}" content="'
        text = text.replace(f'{place}">', f'{place}{html.escape(value)}">', 1)
    return text


def address_of(classes: DataSource | str | None, options: Mapping[str, Any]) -> str:
    """The address of an experiment; options, and classes, that are not given are those of the page.

    If classes of the user are given without options, the options are `VISIBLE_OPTIONS`.
    """
    fields = {}
    if isinstance(classes, str) and classes in NAMES:
        fields["classes"] = classes
    elif classes is not None:
        fields["classes"] = _written(_shown(as_source(classes)))
        options = options or VISIBLE_OPTIONS
    for name, value in _checked(options).items():
        fields[name] = _text(value)
    return "#" * bool(fields) + "&".join(f"{name}={quote(str(word), safe=',:')}" for name, word in fields.items())


def _shown(source: DataSource) -> SequenceClasses:
    """Classes that the page can draw from as the library does."""
    if type(source) is not SequenceClasses:
        raise InputError(
            f"classes is {type(source).__name__}: the explorer shows SequenceClasses, whose tokens are drawn "
            "independently of each other and of their position."
        )
    if not source.has_psi:
        raise InputError(
            "a next token of these classes follows several queries: the explorer shows the paper's form, in which the "
            "next token determines the query; train others with the library."
        )
    return source


def _written(classes: SequenceClasses) -> str:
    """A classes file as JSON, as short as can be."""
    return json.dumps(classes_to_mapping(classes), ensure_ascii=False, separators=(",", ":"))


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options to be written, checked as `train` checks them."""
    every = from_names(TrainOptions, {**FIRST_OPTIONS, **options})
    usual = from_names(TrainOptions, FIRST_OPTIONS)
    for name in options_of(TrainOptions):
        if name not in OPTIONS and name not in OPTIONS_WITHOUT_EFFECT and getattr(every, name) != getattr(usual, name):
            raise InputError(f"the explorer does not support {name}: choose from {', '.join(OPTIONS)}.")
    values = {name: _single(name, getattr(every, name)) for name in OPTIONS if name in options}
    return {name: value for name, value in values.items() if (name, value) != ("momentum", None)}


def _single(name: str, value: Any) -> str | float | None:
    """The value of one run, made of built-in parts."""
    if isinstance(value, tuple) and len(value) == 1:
        (value,) = value
    if not isinstance(value, str | int | float | None):
        raise InputError(f"{name} is {short_repr(value)}: the explorer shows one run, of built-in parts.")
    return value


def _text(value: str | float | bool | None) -> str:
    """A value as the command line writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return str(int(value))
    return str(value)
