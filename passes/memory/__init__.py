"""Memory planning: when each tensor is needed, and where in the arenas it lies."""
