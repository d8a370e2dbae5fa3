"""Texts, tokenizers, and the counts of tokens that occur together."""
