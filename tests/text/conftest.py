"""A small text that all tests here share."""

from __future__ import annotations

import pytest

from scansnap.corpus.corpus import Corpus
from tests.small_text import small_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCANSNAP_CACHE", str(tmp_path_factory.mktemp("cache")))
        return small_corpus(tmp_path_factory.mktemp("text"))
