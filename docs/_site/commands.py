"""The command line's reference, made from the commands: `{commands}` on a page lists every one with its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from scansnap.cli.app import LazyGroup
from scansnap.cli.app import app as program
from scansnap.cli.flags import SectionedCommand


class Commands(SphinxDirective):
    """Every command: how it is called, what it does, and its options by what they are about."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(reference(), allow_section_headings=True)


def reference() -> str:
    """The commands in Markdown."""
    return "\n\n".join(_described(command, words) for words, command in all_commands())


def all_commands() -> Iterator[tuple[tuple[str, ...], SectionedCommand]]:
    """Every command with the words that call it."""
    return _commands(program, ("scansnap",))


def _commands(group: LazyGroup, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], SectionedCommand]]:
    for name in group.commands:
        command = group.load(name)
        if isinstance(command, LazyGroup):
            yield from _commands(command, (*words, name))
        elif isinstance(command, SectionedCommand):
            yield (*words, name), command


def _described(command: SectionedCommand, words: tuple[str, ...]) -> str:
    context = click.Context(command, info_name=words[-1])
    usage = " ".join([*words, *command.collect_usage_pieces(context)])
    parts = [f"## {' '.join(words)}", f"    {usage}", _plain(command.help or "")]
    for title, entries in command.sections(context).items():
        parts.append(f"**{title}**")
        parts += [f"`{name}`\n: {_plain(text)}" for name, text in entries if "--help" not in name]
    return "\n\n".join(parts)


def _plain(text: str) -> str:
    """Help as Markdown: flags are code, and nothing else means anything."""
    return re.sub(r"(--[\w-]+)", r"`\1`", re.sub(r"([<*_])", r"\\\1", text))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
