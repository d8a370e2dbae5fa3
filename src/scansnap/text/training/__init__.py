"""Transformers trained on text, with their attention followed."""
