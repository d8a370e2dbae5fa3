"""A part of a text as a text of its own."""

from __future__ import annotations

import hashlib
from types import MappingProxyType

import numpy as np

from scansnap.corpus.corpus import Corpus
from scansnap.corpus.tokenizers import LINE_END, UNKNOWN, WordTokenizer
from scansnap.runtime.errors import InputError
from scansnap.validation.checks import integer


def excerpt(corpus: Corpus, count: int, *, start: int = 0) -> Corpus:
    """`count` tokens of the training text from `start` on, as both splits.

    If tokens are words, its vocabulary holds only those that occur in it, and those that every vocabulary holds.
    """
    integer("count", count, least=1)
    integer("start", start, least=0)
    if start + count > len(corpus.train):
        raise InputError(
            f"the training text of {corpus.name} has {len(corpus.train):,} tokens, so it has no {count:,} tokens from "
            f"{start:,} on: give a longer text, or a smaller count."
        )
    tokens, tokenizer = np.array(corpus.train[start : start + count]), corpus.tokenizer
    if isinstance(tokenizer, WordTokenizer):
        always = [tokenizer.vocabulary.index(word) for word in (LINE_END, UNKNOWN)]
        occurring = np.union1d(tokens, always)
        tokens = np.searchsorted(occurring, tokens).astype(tokens.dtype)
        tokenizer = WordTokenizer(tokenizer.words(occurring), tokenizer.name)
    digest = hashlib.blake2b(f"{corpus.fingerprint} {start} {count}".encode(), digest_size=16).hexdigest()
    return Corpus(corpus.name, tokenizer, MappingProxyType({"train": tokens, "valid": tokens}), digest)
