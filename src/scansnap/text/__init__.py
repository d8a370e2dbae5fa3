"""Text, the second system: corpora, transformers, their training, and what it says of tokens."""
