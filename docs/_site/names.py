"""The reference of public names: `{names}` documents those that it lists, and code that names one links to it.

    ```{names} scansnap
    train
    flow
    ```

Types and defaults are those of the signature.  What a parameter means stands in the docstring of its function; where
many functions share a parameter, it stands once, in `docs/reference/parameters.toml`.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

PARAMETERS = Path(__file__).parents[1] / "reference" / "parameters.toml"
SHORT = {"ss": "scansnap", "theory": "scansnap.theory", "measure": "scansnap.measure"}
"""What the documents call the modules."""


class Names(SphinxDirective):
    """A table of names with their first sentences, then each of them in full."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        values = {name: getattr(import_module(module), name) for name in self.content if name}
        full = "\n\n".join(_directive(f"{module}.{name}", value) for name, value in values.items())
        return self.parse_text_to_nodes(f"````{{eval-rst}}\n{full}\n````")


def _directive(path: str, value: Any) -> str:
    if inspect.isclass(value):
        return f".. autoclass:: {path}\n   :members:"
    if callable(value) and not isinstance(value, type):
        return f".. autofunction:: {path}"
    return f".. autodata:: {path}\n   :no-value:"


@cache
def shared_parameters() -> dict[str, dict[str, str]]:
    """What parameters mean that many functions share: by module, then by name."""
    return tomllib.loads(PARAMETERS.read_text(encoding="utf-8"))


def described(module: str, name: str) -> str | None:
    """What a parameter of a function means, where the functions of its module share it."""
    tables = shared_parameters()
    homes = [home for home in tables if module.startswith(home)]
    return next((tables[home][name] for home in sorted(homes, key=len, reverse=True) if name in tables[home]), None)


def _complete(app: Sphinx, what: str, path: str, value: Any, options: Any, lines: list[str]) -> None:
    """Add what a function's parameters mean, where its docstring does not say it."""
    if what != "function" or any(line.startswith((":param", ".. rubric:: Parameters")) for line in lines):
        return
    stated = [(name, described(value.__module__, name)) for name in inspect.signature(value).parameters]
    extra = [f":param {name}: {text}" for name, text in stated if text]
    if extra:
        examples = next((i for i, line in enumerate(lines) if line.startswith(".. rubric::")), len(lines))
        lines[examples:examples] = ["", *extra, ""]


class Links(SphinxPostTransform):
    """`ss.train` in the text of a page links to its reference, and `scansnap train` to its command's."""

    default_priority = 5
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        objects = self.env.domains.python_domain.objects
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, nodes.reference | nodes.title) or not literal.parent:
                continue
            match = re.match(r"(ss|theory|measure)\.([\w.]+)", literal.astext())
            entry = objects.get(f"{SHORT[match[1]]}.{match[2]}") if match else None
            if entry is not None:
                link = make_refnode(
                    self.app.builder, self.env.docname, entry.docname, entry.node_id, literal.deepcopy(), entry.objtype
                )
                literal.replace_self(link)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("names", Names)
    app.add_post_transform(Links)
    app.connect("autodoc-process-docstring", _complete, priority=600)  # after the sections have been read
    return {"parallel_read_safe": True, "parallel_write_safe": True}
