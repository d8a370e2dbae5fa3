"""The map from a sequence to logits: the (Y, Z) layer, the regular parameterization, the compact layout."""
