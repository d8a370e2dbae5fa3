"""Many runs at once: one tensor axis first, then a cluster."""
