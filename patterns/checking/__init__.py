"""Checking rules: trials, shape evaluation, near misses, witnesses, relations between rules."""
