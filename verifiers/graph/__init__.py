"""Invariants of graphs: structure, arguments, signature, symbols, debug handles."""
