"""Making programs that are valid by construction."""
