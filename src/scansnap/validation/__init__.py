"""Options stated once, argument types, and registries that users extend."""
