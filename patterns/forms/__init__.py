"""Equivalent spellings of operator calls that one pattern matches."""
