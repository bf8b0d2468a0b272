"""Invariants of the dialects: which operators are legal, and with which dtypes."""
