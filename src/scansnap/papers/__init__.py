"""Other papers on the dynamics of attention, one folder each: its system, theory, claims and figure."""
