"""Text, the second system: corpora, transformers, their training, and the tokens that attention chooses."""
