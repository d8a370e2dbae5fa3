"""The results of runs: labeled datasets, metrics of attention, stores."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["measure"])
