"""How parameters move: closed-form gradients, training in steps, the flow in continuous time."""
