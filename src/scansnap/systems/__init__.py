"""What is trained: a system has parameter blocks, a gradient, quantities and published settings."""
