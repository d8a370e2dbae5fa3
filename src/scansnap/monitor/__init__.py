"""A monitor of attention in any PyTorch model while it trains."""
