"""Pictures: `prepare(...) -> Dataset`, `draw(dataset) -> Figure`; a plot never computes."""
