"""Many runs at once: on one tensor axis, then on a cluster."""
