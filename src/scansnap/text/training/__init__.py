"""Training of transformers on text, with measurements of their attention."""
