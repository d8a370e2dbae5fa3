"""The paper's lemmas, theorems and corollaries, and your own claims, as checks of theory against dynamics."""
