"""Shortcuts in labeled text: words that give the label away."""
