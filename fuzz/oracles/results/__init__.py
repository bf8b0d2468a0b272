"""Oracles of results: what our interpreter computes from the file, against eager torch."""
