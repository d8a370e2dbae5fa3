"""Which tokens occur together in a text of any size."""
