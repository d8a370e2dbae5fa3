"""The reference of public names: `{names}` documents those that it lists, and code that names one links to it.

    ```{names} scansnap
    train
    flow
    ```

Types and defaults are those of the signature, and `public.py` says what parameters mean.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

import scansnap
from _site.commands import all_commands
from _site.public import MODULES, default_of, docstring, paper_systems, parameters
from _site.types import short_types
from scansnap import HeadQuantity, Quantity
from scansnap.monitor.verdict_rules import VerdictRule
from scansnap.runtime.formulas import readable
from scansnap.validation.options import Options
from scansnap.validation.user_code import Registry

for _name in MODULES:  # autodoc looks for them where they are seen, which is not always where they live
    sys.modules.setdefault(f"scansnap.{_name}", getattr(scansnap, _name))

SHORT = {"ss": "scansnap", **{name: f"scansnap.{name}" for name in MODULES}}
"""What the documents call the modules."""

COMMANDS_PAGE = "reference/commands"
COMMAND_NAMES = [" ".join(words) for words, _ in all_commands()]


class Names(SphinxDirective):
    """Each of the names, in full."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        values = {f"{module}.{name}": getattr(import_module(module), name) for name in self.content if name}
        text = "\n\n".join(_directive(path, value) for path, value in values.items())
        return self.parse_text_to_nodes(f"````{{eval-rst}}\n{text}\n````")


class Papers(SphinxDirective):
    """The systems of every paper, under the title of the paper."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n\n".join(map(_paper, paper_systems().items())))


def _paper(paper: tuple[str, list[str]]) -> str:
    title, classes = paper
    text = "\n\n".join(f".. autoclass:: {path}\n   :members:" for path in classes)
    return f"**{title}**\n\n````{{eval-rst}}\n{text}\n````"


def _directive(path: str, value: Any) -> str:
    if inspect.isclass(value):
        return f".. autoclass:: {path}\n   :members:"
    if inspect.isroutine(value):
        return f".. autofunction:: {path}"
    lines = [*docstring(path, value).splitlines(), "", *_members(value)]
    return f".. py:data:: {path}\n\n" + "\n".join(f"   {line}" for line in lines)


def _members(values: Mapping[str, Any]) -> list[str]:
    """What a list of named things holds, with what each is in a sentence."""
    return [f"- ``{name}``: {_plain(_sentence(values, name))}" for name in values]


def _sentence(values: Mapping[str, Any], name: str) -> str:
    if not isinstance(values, Registry):
        return f"{values[name].about}."
    member, maker = values.member(name), values[name]
    if isinstance(member, Quantity | HeadQuantity):
        return getattr(member, "long_name", "") or member.attributes["long_name"]
    if isinstance(member, VerdictRule):
        return member.meaning
    said = inspect.getdoc(maker.func if isinstance(maker, partial) else maker) or ""
    return said.split("\n\n")[0].replace("\n", " ")


def _complete(app: Sphinx, what: str, path: str, value: Any, options: Any, lines: list[str]) -> None:
    """Add what parameters mean, where the docstring does not list them."""
    if what not in ("function", "class") or any(line.startswith(":param") for line in lines):
        return
    said = {name: text for name, text in parameters(value).items() if text}
    if inspect.isclass(value) and said:
        said = {name: _with_default(value, name, text) for name, text in said.items()}
    listed = [f":param {name}: {_plain(text)}" for name, text in said.items()]
    examples = next((i for i, line in enumerate(lines) if line.startswith(">>>")), len(lines))
    lines[examples:examples] = ["", *listed, ""] if listed else []


def _short(app: Sphinx, what: str, path: str, value: Any, options: Any, given: str | None, back: Any) -> Any:
    """The signature and what is returned, with types as a reader knows them."""
    return short_types(given) if given else given, short_types(back) if back else back


def _with_default(cls: type, name: str, text: str) -> str:
    default = default_of(cls, name) if issubclass(cls, Options) else ""
    return f"{text} By default ``{default}``." if default else text


def _plain(text: str) -> str:
    """A sentence as reStructuredText: nothing in it is a reference."""
    return re.sub(r"([|*])", r"\\\1", text)


def _escape(app: Sphinx, what: str, path: str, value: Any, options: Any, lines: list[str]) -> None:
    """Read formulas as they stand: `z_` is no link, `|f|` no substitution, an indented line code.

    In the theory, letters that are called by their names become signs.
    """
    is_example = False
    for i, line in enumerate(lines):
        is_example = line.lstrip().startswith(">>>") or (is_example and bool(line))
        if is_example:
            continue
        if path.startswith("scansnap.theory") and not re.match(r"[\w, ]+ : ", line):  # which is a parameter's type
            line = re.sub(r"`[^`]*`|[^`]+", lambda part: part[0] if part[0][0] == "`" else readable(part[0]), line)
        lines[i] = re.sub(r"([|*])|(?<=\w)(_)(?=\W|$)", lambda match: f"\\{match[0]}", line)


def _types(app: Sphinx, what: str, path: str, value: Any, options: Any, lines: list[str]) -> None:
    """Types of parameters as in the signature; what stands before a colon in the text of an attribute is none."""
    for i, line in enumerate(lines):
        if line.startswith(":type: "):
            lines[0] = f"{lines.pop(i).removeprefix(':type: ')}: {lines[0]}"
            break
        if line.startswith(":type "):
            lines[i] = short_types(line)


class Links(SphinxPostTransform):
    """`ss.train` in the text of a page links to its reference, and `scansnap train` to that of the command."""

    default_priority = 5
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            if not isinstance(literal.parent, nodes.reference | nodes.title):
                link = self._link(literal)
                if link is not None:
                    literal.replace_self(link)

    def _link(self, literal: nodes.literal) -> nodes.reference | None:
        text, objects = literal.astext(), self.env.domains.python_domain.objects
        name = re.match(rf"({'|'.join(SHORT)})\.([\w.]+)", text)
        entry = objects.get(f"{SHORT[name[1]]}.{name[2]}") if name else None
        if entry is not None:
            return self._reference(entry.docname, entry.node_id, literal)
        command = max((words for words in COMMAND_NAMES if f"{text} ".startswith(f"{words} ")), key=len, default=None)
        if command is not None and self.env.docname != COMMANDS_PAGE:
            return self._reference(COMMANDS_PAGE, command.replace(" ", "-"), literal)
        return None

    def _reference(self, page: str, place: str, literal: nodes.literal) -> nodes.reference:
        return make_refnode(self.app.builder, self.env.docname, page, place, literal.deepcopy())


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("names", Names)
    app.add_directive("papers", Papers)
    app.add_post_transform(Links)
    app.connect("autodoc-process-signature", _short)
    app.connect("autodoc-process-docstring", _escape, priority=400)  # before sections are read
    app.connect("autodoc-process-docstring", _complete, priority=600)  # after that
    app.connect("autodoc-process-docstring", _types, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
