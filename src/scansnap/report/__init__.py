"""The page that puts figures, published numbers and verdicts side by side."""
