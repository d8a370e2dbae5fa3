"""Pictures: `prepare(...) -> Dataset` computes, and `draw(dataset) -> Figure` only draws."""
