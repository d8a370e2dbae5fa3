"""How wide the rows of compiled code are."""

LANES = 16
"""Output columns are padded to a multiple of this with multiplicity 0: whole vector registers, no remainder loops."""
