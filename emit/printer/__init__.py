"""Programs as text."""
