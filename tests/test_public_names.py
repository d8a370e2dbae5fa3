"""Every public name is explained: what it is, what each of its parameters means, and an example that runs."""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scansnap as ss

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))
from _site.public import docstring, parameters, public_names  # noqa: E402

NAMES = dict(public_names())
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NEEDS = {"LightningWatch": "lightning", "TrainerWatch": "transformers", "explore": "anywidget"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.mark.parametrize("path", NAMES, ids=lambda path: path.removeprefix("scansnap."))
def test_the_example_runs(path: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (name := path.removeprefix("scansnap.")) in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SCANSNAP_CACHE", str(folder / "cache"))
    known = {"ss": ss, "np": np, "theory": ss.theory, "__name__": "example"}
    example = doctest.DocTestParser().get_doctest(docstring(path, NAMES[path]), known, path, None, None)
    assert example.examples, "there is no example"
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=LOOSE).run(example, out=said.append)
    assert outcome.failed == 0, "".join(said)


def test_every_parameter_is_explained() -> None:
    def silent(value: Any) -> list[str]:
        described = isinstance(value, type) or callable(value)
        return [name for name, text in parameters(value).items() if not text] if described else []

    assert {path: names for path, value in NAMES.items() if (names := silent(value))} == {}


def test_every_name_is_in_the_reference_once() -> None:
    listed = []
    for page in (DOCS / "reference").glob("*.md"):
        for module, names in re.findall(r"^```\{names\} (\S+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            listed += [f"{module}.{name}" for name in names.split()]
    assert sorted(listed) == sorted(NAMES)
