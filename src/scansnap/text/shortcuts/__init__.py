"""Shortcuts in labelled text: which words tell the label, which of them attention picks, and which only seem to."""
