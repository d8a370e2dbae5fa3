"""The results of runs: labeled datasets, metrics of attention, storage, provenance."""
