"""Every test has its own cache; the example and its counts are shared."""

from __future__ import annotations

from pathlib import Path

import pytest

import scansnap as ss
from scansnap.corpus.corpus import Corpus


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SCANSNAP_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(tmp_path_factory.mktemp("cache")))
        return ss.read_corpus("example")


@pytest.fixture(scope="session")
def counts(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> ss.Counts:
    return ss.count_corpus(corpus, output=tmp_path_factory.mktemp("counted") / "counts", window=36)
