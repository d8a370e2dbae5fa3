"""Commands that are imported when they are called, or when their help is asked for."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import typer
from typer.core import TyperGroup

from scansnap.cli.sections import SectionedCommand
from scansnap.cli.stopping import Stopped


def group_of(homes: Mapping[str, str]) -> type[TyperGroup]:
    """The class of a group of commands, each of which lives in `module:function` of this folder."""

    class Group(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands = {**{name: LazyCommand(name, home) for name, home in homes.items()}, **self.commands}

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as stop:
                raise Stopped(stop) from None

    return Group


NO_HELP = {"default_map": {"help": False}}
"""What `--help` is where it is not given: None would be validated by pydantic, which is slow to import."""


class LazyCommand(SectionedCommand):
    """A command that knows its name and its first sentence, and imports its module for everything else."""

    def __init__(self, name: str, home: str) -> None:
        self._module, self._function = home.split(":")
        super().__init__(name, short_help=self._first_sentence(), rich_markup_mode=None, context_settings=NO_HELP)
        del self.params, self.callback, self.help  # so that they are asked for below

    def _first_sentence(self) -> str:
        """The first paragraph of the command's docstring, read without running the module."""
        source = Path(__file__).with_name(f"{self._module}.py").read_text(encoding="utf-8")
        functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
        (own,) = (node for node in functions if node.name == self._function)
        return (ast.get_docstring(own) or "").split("\n\n")[0]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """For a shell that completes a line, which asks for names only, leave values as they are.

        Pydantic would convert them, and its import takes as long as all the rest.
        """
        if not ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        _, ctx.args, _ = self.make_parser(ctx).parse_args(args=args)
        return ctx.args

    def __getattr__(self, name: str) -> Any:
        if name not in ("params", "callback", "help"):
            raise AttributeError(name)
        alone = typer.Typer(add_completion=False)
        function = getattr(import_module(f"scansnap.cli.{self._module}"), self._function)
        alone.command(self.name)(function)
        whole = typer.main.get_command(alone)
        kinds = get_type_hints(function)
        for param in whole.params:
            if not param.required and not param.multiple and param.nargs == 1:
                _pass_on(param, is_text=kinds.get(param.name) in (str, str | None))
        self.params, self.callback, self.help = whole.params, whole.callback, whole.help
        return getattr(self, name)


def _pass_on(param: Any, *, is_text: bool) -> None:
    """Let text, and what is not given, pass without pydantic, which would leave both as they are."""
    convert = param.process_value
    param.process_value = lambda ctx, value: value if value is None or is_text else convert(ctx, value)
