"""Invariants of specs and memory plans."""
