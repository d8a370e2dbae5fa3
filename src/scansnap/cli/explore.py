"""`scansnap explore`."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated, Any

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Argument, Flag, command
from scansnap.cli.option_flags import option_flags
from scansnap.cli.request import CLASSES_HELP, drop_foreign_momentum
from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.published import PUBLISHED
from scansnap.explorer.page import OPTIONS, address_of, page_of
from scansnap.validation.options import options_of, values_of


@command(
    common.OVERWRITE_FLAG,
    *option_flags(TrainOptions, leave_out=[name for name in options_of(TrainOptions) if name not in OPTIONS]),
)
def explore(
    classes: Annotated[
        str | None,
        Argument(f"Sequence classes, by name or from a file: {CLASSES_HELP}; by default two topics in words."),
    ] = None,
    output: Annotated[Path | None, Flag("Write the page there, and do not open it.")] = None,
    json: Annotated[bool, common.JSON] = False,
    **flags: Any,
) -> None:
    """Open a page on which attention trains while you watch, change rates and data, and compare with theory.

    The page is one file, which needs no server and no network. Options set the initial values of its controls; a
    published setting brings its own rates and momentum. The page shows one run.
    """
    from scansnap.report.html import write_page

    options = flags
    if classes is not None and classes in PUBLISHED:
        published = drop_foreign_momentum(values_of(PUBLISHED[classes].options), flags)
        options = {name: value for name, value in {**published, **flags}.items() if name in OPTIONS}
    page = page_of(address_of(classes, options))
    path = output or Path(tempfile.mkdtemp(prefix="scansnap-")) / "explorer.html"
    write_page(path, page)
    opened = output is None and webbrowser.open(path.resolve().as_uri())
    if json:
        common.echo_json({"page": str(path), "opened": opened})
    else:
        echo(f"page: {path}" + ("" if opened else "   (open it in a browser)"))
