"""Which tokens occur together in a text of any size: counted exactly, kept as tables, read by query."""
