"""Figures of what the paper names and leaves open: other layers, optimisers, finite data (Sections 3, 7, 8 and 9)."""
