"""Figures about what the paper names and leaves open: layers, optimizers, finite data (Sections 3, 5, 7, 8 and 9)."""
