"""What maps a sequence to logits: the (Y, Z) layer, the regular parameterisation, the compact layout."""
