"""Bugs of other compilers, written without knowledge of generator and oracles: how many are found."""
