"""Pictures: `prepare(...) -> Dataset` computes, and `draw(dataset) -> Figure` only draws."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["plot"])
