"""What is public, and what is said of it: names, docstrings, and the meaning of every parameter.

A parameter is explained where it belongs: in the docstring of its function, as the help of an option, or in the comment
beside the field of a class.  One that many functions share, or whose function is too short for a list of parameters, is
explained once, in `docs/reference/parameters.toml`, under the longest prefix that names its home.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import scansnap
from scansnap.systems.catalog import OWN_PAPERS, SYSTEMS, installed_papers, paper_of
from scansnap.validation.options import Options, options_of

TABLE = Path(__file__).parents[1] / "reference" / "parameters.toml"
MODULES = tuple(name for name in scansnap.__all__ if inspect.ismodule(getattr(scansnap, name)))
"""Public names that are modules of names."""


def public_names() -> Iterator[tuple[str, Any]]:
    """Every public name, as `scansnap.train` or `scansnap.theory.speed`, with its value."""
    for name in scansnap.__all__:
        if name not in MODULES:
            yield f"scansnap.{name}", getattr(scansnap, name)
    for module in MODULES:
        for name, value in public_members(getattr(scansnap, module)).items():
            yield f"scansnap.{module}.{name}", value


def paper_systems() -> dict[str, list[str]]:
    """The systems of every paper, also of installed ones, by the paper's title: `scansnap.papers.joma.JoMA`."""
    classes = {type(SYSTEMS.member(name)): None for name in SYSTEMS}
    return {
        (inspect.getdoc(import_module(package)) or package).split("\n\n")[0].removesuffix("."): [
            f"{package if hasattr(import_module(package), cls.__name__) else cls.__module__}.{cls.__name__}"
            for cls in classes
            if paper_of(cls) == package
        ]
        for package in (*OWN_PAPERS, *installed_papers())
    }


def public_members(module: ModuleType) -> dict[str, Any]:
    """The functions and classes of a module that it defines, or that its own package does."""
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith(module.__name__)
    }


def docstring(path: str, value: Any) -> str:
    """The docstring of a function or class, or the text after a constant's definition."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    name = path.rpartition(".")[2]
    body = ast.parse(inspect.getsource(import_module(_homes()[name]))).body
    for statement, following in pairwise(body):
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else getattr(statement, "targets", [])
        if any(getattr(target, "id", "") == name for target in targets):
            return inspect.cleandoc(_text(following))
    return ""


@cache
def _homes() -> dict[str, str]:
    """The module that defines each public name, by the stub."""
    stub = ast.parse(Path(scansnap.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"scansnap.{node.module}" for node in imports for alias in node.names}


def _text(node: ast.AST | None) -> str:
    """The text that a statement consists of, if it does."""
    alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return str(node.value.value) if alone else ""  # type: ignore[union-attr]


def parameters(value: Any) -> dict[str, str]:
    """What every parameter of a function, or of a class, means; empty where nothing says it.

    Parameters of classes that the package makes itself are left out.
    """
    said = _listed(inspect.getdoc(value) or "")
    if inspect.isclass(value) and not said:
        return _fields(value) if is_dataclass(value) and "__init__" in vars(value) else {}
    return {
        name: said.get(name) or _shared(f"{value.__module__}.{value.__name__}", name)
        for name, parameter in inspect.signature(value).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


def _listed(text: str) -> dict[str, str]:
    """The parameters in the list of a docstring."""
    entries = re.findall(r"^([\w, ]+) : .*\n    (.*)", text, re.MULTILINE)
    return {name: words for names, words in entries for name in names.split(", ")}


def _fields(cls: type) -> dict[str, str]:
    if issubclass(cls, Options):
        return {name: option.python for name, option in options_of(cls).items()}
    said = {}
    for home in reversed(cls.__mro__):
        said.update(_comments(home) if is_dataclass(home) else {})
    stated = [field.name for field in fields(cls) if field.init]
    return {name: said.get(name) or _shared(f"{cls.__module__}.{cls.__name__}", name) for name in stated}


def _comments(cls: type) -> dict[str, str]:
    """The comments beside the fields of a class, or the text below them."""
    source = inspect.cleandoc("\n" + inspect.getsource(cls))
    lines = source.splitlines()
    (definition,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    said: dict[str, str] = {}
    for node, following in zip(definition.body, [*definition.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        text = lines[node.end_lineno - 1][node.end_col_offset :].strip()
        for line in lines[node.end_lineno :]:  # a comment that goes on
            if not text.startswith("#") or not line.strip().startswith("#"):
                break
            text += line.strip().removeprefix("#")
        words = " ".join(_text(following).split()) or text.partition("#")[2].strip()
        if words:
            said[node.target.id] = words[0].upper() + words[1:]
    return said


@cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def _shared(home: str, name: str) -> str:
    prefixes = sorted((prefix for prefix in _tables() if home.startswith(prefix)), key=len, reverse=True)
    return next((_tables()[prefix][name] for prefix in prefixes if name in _tables()[prefix]), "")


def default_of(cls: type, name: str) -> str:
    """The default of a field, as code; empty where it must be given."""
    (field,) = (field for field in fields(cls) if field.name == name)
    if field.default_factory is not MISSING:
        return f"{field.default_factory.__name__}()"
    return "" if field.default is MISSING else repr(field.default)
