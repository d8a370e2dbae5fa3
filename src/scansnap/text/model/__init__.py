"""The transformer for text and the loss of its decoder."""
