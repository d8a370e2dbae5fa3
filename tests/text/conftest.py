"""Every test has its own cache; a small text and the example are shared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.text.corpus import Corpus
from tests.small_text import small_corpus


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SCANSNAP_CACHE", str(folder))
    return folder


def read_once(tmp_path_factory: pytest.TempPathFactory, read: Callable[[], Corpus]) -> Corpus:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(tmp_path_factory.mktemp("cache")))
        return read()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return read_once(tmp_path_factory, lambda: small_corpus(tmp_path_factory.mktemp("text")))


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return read_once(tmp_path_factory, lambda: ss.read_corpus("example"))
