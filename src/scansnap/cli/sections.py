"""Help in sections, one for each concept that options belong to.

Typer's own help prints these as panels, by way of rich, whose import takes longer than all the rest of `--help`.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

WIDTH = 100
"""The most characters in a line of help."""


class SectionedCommand(TyperCommand):
    """A command whose help groups its options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            usual = f"{parameter.param_type_name.capitalize()}s"  # "Arguments" or "Options"
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = getattr(parameter, "rich_help_panel", None) or usual
                sections.setdefault(title, []).append((typer.style(record[0], fg="cyan"), record[1]))
        for title, records in sections.items():
            with formatter.section(typer.style(title, bold=True)):
                formatter.write_dl(records)
