"""Text: where it comes from, how it becomes tokens, and which tokens occur together."""
