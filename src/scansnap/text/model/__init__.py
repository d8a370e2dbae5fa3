"""The transformer for text and its decoder's loss."""
