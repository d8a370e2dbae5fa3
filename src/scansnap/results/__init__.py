"""What a run leaves: labeled datasets, metrics of attention, storage, provenance."""
