"""Planning of several methods together: common arenas, limits and shared buffers."""
