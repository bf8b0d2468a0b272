"""Searching for miscompilations: generated programs, oracles, blame, reduction and campaigns."""
