"""What callers configure: documented settings, and what files of policies have in common."""
