"""Help in sections, one for each concept that options belong to.

Typer's own help prints these as panels, by way of rich, whose import takes longer than all the rest of `--help`.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

WIDTH = 100
"""The most characters in a line of help."""

UNBROKEN = "\N{NON-BREAKING HYPHEN}"
"""What stands for a hyphen while lines are broken, so that names stay in one piece."""


class SectionedCommand(TyperCommand):
    """A command whose help groups its options."""

    def sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """What each section of the help lists: arguments first, and last the presets, where there is --preset."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            usual = f"{parameter.param_type_name.capitalize()}s"  # "Arguments" or "Options"
            record = parameter.get_help_record(ctx)
            if record is not None:
                name, text = record
                entry = name.replace("<list[str]>", "<str>"), text  # that there may be several, its dots say
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(entry)
            if parameter.name == "preset":
                from scansnap.dynamics.published import PUBLISHED

                sections["Presets"] = [(name, experiment.about) for name, experiment in PUBLISHED.items()]
        sections["Presets"] = sections.pop("Presets", [])
        return {title: entries for title, entries in sections.items() if entries}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, entries in self.sections(ctx).items():
            with formatter.section(typer.style(title, bold=True)):
                formatter.write_dl([(typer.style(name, fg="cyan"), _unbroken(text)) for name, text in entries])

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace(UNBROKEN, "-")


def _unbroken(text: str) -> str:
    return text.replace("-", UNBROKEN)
