"""What a run leaves: labelled datasets, metrics of attention, storage, provenance."""
