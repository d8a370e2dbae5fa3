"""Shortcuts in labeled text: which words tell the label, which of them attention picks, and which only seem to."""
